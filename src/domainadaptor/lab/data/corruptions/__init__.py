"""The fifteen common corruptions of Hendrycks and Dietterich (ICLR 2019), for pictures of any size.

Fourteen are the published ones, with the published constants of CIFAR-10-C and of ImageNet-C: the same formulas and the
same distributions, though not the same random numbers. Frost is not: the original lays photographs of frost over the
picture, and this library ships none, so ice crystals are drawn instead. The files of ImageNet-C were also stored as
JPEG of quality 85 after each corruption, which is not done here.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np
from PIL import Image

from domainadaptor.errors import BadOption
from domainadaptor.lab.data.corruptions import blur, digital, noise, weather
from domainadaptor.lab.data.corruptions.levels import LEVELS
from domainadaptor.lab.data.corruptions.pixels import Pixels, to_picture, to_pixels
from domainadaptor.options import check_choice, check_count

__all__ = ["CORRUPTIONS", "corrupt"]

_FUNCTIONS: dict[str, Callable[..., Pixels]] = {
    "gaussian_noise": noise.gaussian_noise,
    "shot_noise": noise.shot_noise,
    "impulse_noise": noise.impulse_noise,
    "defocus_blur": blur.defocus_blur,
    "glass_blur": blur.glass_blur,
    "motion_blur": blur.motion_blur,
    "zoom_blur": blur.zoom_blur,
    "snow": weather.snow,
    "frost": weather.frost,
    "fog": weather.fog,
    "brightness": weather.brightness,
    "contrast": digital.contrast,
    "elastic_transform": digital.elastic_transform,
    "pixelate": digital.pixelate,
    "jpeg_compression": digital.jpeg_compression,
}

CORRUPTIONS: tuple[str, ...] = tuple(_FUNCTIONS)


def corrupt(
    image: Image.Image,
    name: str,
    severity: int,
    *,
    constants: Literal["cifar", "imagenet"] = "imagenet",
    seed: int = 0,
) -> Image.Image:
    """A corrupted copy of an RGB picture, of the same size.

    Args:
        image: The picture; it stays as it is.
        name: One of `CORRUPTIONS`.
        severity: From 1, the mildest, to 5.
        constants: Those of CIFAR-10-C, made for 32 by 32 pixels, or of ImageNet-C, made for 224 by 224. Lengths are in
            pixels, except those of `elastic_transform` and `pixelate`, which are shares of the picture's size.
        seed: The same seed gives the same pixels; no other random state is read or changed.

    Raises:
        BadOption: An option is not known, or the picture is empty or not RGB.
    """
    check_choice("name", name, CORRUPTIONS)
    check_choice("constants", constants, LEVELS)
    check_count("severity", severity, low=1)
    check_choice("severity", severity, range(1, 6))
    check_count("seed", seed, low=0)
    if image.mode != "RGB" or 0 in image.size:
        raise BadOption(
            f"image: expected RGB and at least one pixel, got {image.mode} of {image.width}x{image.height}; "
            "image.convert('RGB') changes the mode"
        )
    level = LEVELS[constants][name][severity - 1]
    return to_picture(_FUNCTIONS[name](to_pixels(image), np.random.default_rng(seed), *level))
