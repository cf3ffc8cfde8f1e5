"""Pixels: a network's normalized input taken back to values from 0 to 1, where colors can be changed, and forth."""

from collections.abc import Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from domainadaptor.errors import BadBatch, BadOption
from domainadaptor.options import check_number

PerChannel = str | float | Sequence[float]


class Pixels:
    """How images were normalized, (pixel - mean) / std.

    Args:
        mean: A number for each channel, one for all of them, or the numbers as text with commas.
        std: The same.
    """

    def __init__(self, mean: PerChannel, std: PerChannel) -> None:
        self.mean, self.std = _numbers("mean", mean), _numbers("std", std)
        for value in self.mean:
            check_number("mean", value, low=-3.4e38)
        for value in self.std:
            check_number("std", value, low=0, above=True)

    def of(self, images: Tensor) -> Tensor:
        """The pixels of images (N, C, H, W) in at least float32; 0 to 1 if the images were normalized so.

        Raises:
            BadBatch: They are no images, or have another number of channels.
        """
        if images.ndim != 4:
            raise BadBatch(
                f"views are made of images of shape (N, C, H, W), got {tuple(images.shape)}; use another method"
            )
        wrong = [len(numbers) for numbers in (self.mean, self.std) if len(numbers) not in (1, images.shape[1])]
        if wrong:
            raise BadBatch(
                f"images of {images.shape[1]} channels, and {wrong[0]} numbers in mean or std; pass the mean and std "
                "that the images were normalized with, a number for each channel or one for all"
            )
        wide = images.to(torch.promote_types(images.dtype, torch.float32))
        mean, std = self._shaped(wide)
        return wide * std + mean

    def back(self, pixels: Tensor, like: Tensor) -> Tensor:
        """Pixels as the network was trained to see them, in the precision and layout of `like`."""
        mean, std = self._shaped(pixels)
        wide = like.is_contiguous(memory_format=torch.channels_last)
        layout = torch.channels_last if wide else torch.contiguous_format
        return ((pixels - mean) / std).to(like.dtype).contiguous(memory_format=layout)

    def _shaped(self, like: Tensor) -> list[Tensor]:
        return [like.new_tensor(numbers).view(-1, 1, 1) for numbers in (self.mean, self.std)]


def _numbers(option: str, given: PerChannel) -> tuple[float, ...]:
    values: Sequence[float] = ()
    try:
        words: Any = given.split(",") if isinstance(given, str) else [given] if isinstance(given, Real) else given
        values = [float(word) for word in words]
    except (TypeError, ValueError):
        pass
    if not values:
        raise BadOption(f"{option}={given!r}: expected numbers, as 0.485,0.456,0.406, or one number")
    return tuple(values)
