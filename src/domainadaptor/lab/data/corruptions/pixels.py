"""Images as arrays from 0 to 1, and back."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

PixelArray: TypeAlias = NDArray[np.float64]
"""(H, W, 3) or (H, W); black is 0, white is 1."""


def to_array(image: Image.Image) -> PixelArray:
    """Return the pixels of an RGB image."""
    return np.asarray(image, dtype=np.float64) / 255


def to_bytes(pixels: PixelArray) -> NDArray[np.uint8]:
    """Clip, then truncate to eight bits instead of rounding, as the published programs do."""
    # The offset keeps 127.9999999, which is 128 up to floating-point error, from becoming 127.
    return (pixels.clip(0, 1) * 255 + 1e-6).astype(np.uint8)


def to_image(pixels: PixelArray) -> Image.Image:
    """Return the RGB image of an array."""
    return Image.fromarray(to_bytes(pixels))
