"""Pictures as numbers from 0 to 1, and back."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pixels: TypeAlias = NDArray[np.float64]
"""Height by width by three colors, or height by width; black is 0, white is 1."""


def to_pixels(picture: Image.Image) -> Pixels:
    """The colors of an RGB picture."""
    return np.asarray(picture, dtype=np.float64) / 255


def to_bytes(pixels: Pixels) -> NDArray[np.uint8]:
    """Colors clipped, then cut off to eight bits, not rounded, as in the published programs."""
    # The small number keeps 127.9999999, which is 128 but for the rounding of floats, from becoming 127.
    return (pixels.clip(0, 1) * 255 + 1e-6).astype(np.uint8)


def to_picture(pixels: Pixels) -> Image.Image:
    """The RGB picture of colors."""
    return Image.fromarray(to_bytes(pixels))
