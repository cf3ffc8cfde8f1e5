"""The fifteen common corruptions of Hendrycks and Dietterich (ICLR 2019), for images of any size.

Fourteen are the published ones, with the published constants of CIFAR-10-C and of ImageNet-C: the same formulas and the
same distributions, but other random numbers. Frost differs: the original blends in photographs of frost, which this
library does not ship, so it draws ice crystals. The files of ImageNet-C were also saved as JPEG of quality 85, which
is not done here.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np
from PIL import Image

from domainadaptor.errors import BadOption
from domainadaptor.lab.data.corruptions import blur, digital, weather
from domainadaptor.lab.data.corruptions.levels import LEVELS
from domainadaptor.lab.data.corruptions.pixels import PixelArray, to_array, to_image
from domainadaptor.options import check_choice, check_count

__all__ = ["CORRUPTIONS", "corrupt"]

_FUNCTIONS: dict[str, Callable[..., PixelArray]] = {
    "gaussian_noise": digital.gaussian_noise,
    "shot_noise": digital.shot_noise,
    "impulse_noise": digital.impulse_noise,
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
    """Return a corrupted copy of an RGB image, of the same size.

    Args:
        image: The image; it is not modified.
        name: One of `CORRUPTIONS`.
        severity: 1 (mildest) to 5.
        constants: Those of CIFAR-10-C, for 32x32 pixels, or of ImageNet-C, for 224x224. Lengths are in pixels; those of
            `elastic_transform` and `pixelate` are shares of the image's size.
        seed: The same seed gives the same pixels; no global random state is used.
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
    return to_image(_FUNCTIONS[name](to_array(image), np.random.default_rng(seed), *level))
