"""Pixels: convert between a network's normalized input and values from 0 to 1."""

from collections.abc import Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from domainadaptor.augmentation.crops import memory_format
from domainadaptor.errors import BadBatch, BadOption
from domainadaptor.options import check_number

PerChannel = str | float | Sequence[float]


class Pixels:
    """The normalization of images, (pixel - mean) / std.

    Args:
        mean: One number per channel, one for all of them, or comma-separated text.
        std: The same.
    """

    def __init__(self, mean: PerChannel, std: PerChannel) -> None:
        self.mean, self.std = _numbers("mean", mean), _numbers("std", std)
        for value in self.mean:
            check_number("mean", value, low=-3.4e38)
        for value in self.std:
            check_number("std", value, low=0, above=True)

    def of(self, images: Tensor) -> Tensor:
        """Return the pixels of images (N, C, H, W) in at least float32, or raise BadBatch."""
        if images.ndim != 4:
            raise BadBatch(
                f"Expected images of shape (N, C, H, W) to augment, got {tuple(images.shape)}. Use another method."
            )
        wrong = [len(numbers) for numbers in (self.mean, self.std) if len(numbers) not in (1, images.shape[1])]
        if wrong:
            raise BadBatch(
                f"The images have {images.shape[1]} channels, but mean or std has {wrong[0]} numbers. Pass the mean "
                "and std of the images' normalization, one number per channel or one for all."
            )
        wide = images.to(torch.promote_types(images.dtype, torch.float32))
        mean, std = self._shaped(wide)
        return wide * std + mean

    def back(self, pixels: Tensor, like: Tensor) -> Tensor:
        """Normalize pixels, in the precision and memory format of `like`."""
        mean, std = self._shaped(pixels)
        return ((pixels - mean) / std).to(like.dtype).contiguous(memory_format=memory_format(like))

    def _shaped(self, like: Tensor) -> list[Tensor]:
        return [like.new_tensor(numbers).view(-1, 1, 1) for numbers in (self.mean, self.std)]


def _numbers(option: str, given: PerChannel) -> tuple[float, ...]:
    words: Any = given.split(",") if isinstance(given, str) else [given] if isinstance(given, Real) else given
    try:
        values = tuple(float(word) for word in words)
    except (TypeError, ValueError):
        values = ()
    if not values:
        raise BadOption(f"{option}={given!r}: expected one number, or one per channel as 0.485,0.456,0.406")
    return values
