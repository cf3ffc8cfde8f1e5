"""Means and variances of activations, per image and per batch."""

import functools
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Variance = Literal["unbiased", "biased"]
_MOST_ADDED = 256  # values that a kernel adds one after the other


class Moments(NamedTuple):
    """Means and variances per channel, of one or several images."""

    mean: Tensor  # (..., C)
    var: Tensor  # (..., C)

    def mix(self, other: "Moments", weight: Tensor | float) -> "Moments":
        """Return weight * self + (1 - weight) * other."""
        return Moments(*(weight * mine + (1 - weight) * theirs for mine, theirs in zip(self, other, strict=True)))


def image_moments(x: Tensor) -> Moments:
    """Return mean and biased variance of each image and channel over space, (N, C) each."""
    if x.ndim < 3:
        mean = in_float32(x)
        return Moments(mean, torch.zeros_like(mean))
    if x.device.type != "cpu":
        var, mean = torch.var_mean(in_float32(x).flatten(2), dim=2, correction=0)
        return Moments(mean, var)
    # torch.var_mean is ten times slower on CPUs. A single image still is in the processor cache when it is read again.
    last = x.movedim(1, -1)
    if not last.is_contiguous():
        return _stacked(_each(in_float32(image).flatten(1) for image in x))
    # Channels last. The kernel adds rows, and long sums lose digits, so that several pixels form a row.
    pixels = last[0].numel() // x.shape[1]
    groups = _groups(pixels)
    rows = last.reshape(len(x), pixels // groups, -1)
    of_groups = [torch.batch_norm_update_stats(in_float32(image), None, None, 0.0) for image in rows]
    means, variances = (moment.unflatten(1, (groups, -1)) for moment in _stacked(of_groups))
    return _joined(Moments(means, variances), dim=1)


@functools.cache
def _groups(pixels: int) -> int:
    """Return the least number of equal groups of pixels that are small enough to add up."""
    fitting = (groups for groups in range(1, pixels + 1) if pixels % groups == 0 and pixels // groups <= _MOST_ADDED)
    return next(fitting, 1)


def batch_moments(images: Moments) -> Moments:
    """Return mean and biased variance of the batch from those of its images, (C,) each."""
    return _joined(images, dim=0)


def _joined(parts: Moments, dim: int) -> Moments:
    """Combine moments of parts with equally many values."""
    mean = parts.mean.mean(dim, keepdim=True)
    return Moments(mean.squeeze(dim), parts.var.mean(dim) + (parts.mean - mean).square_().mean(dim))


def _each(images: Iterable[Tensor]) -> Iterator[Moments]:
    """Yield the moments of images (C, S), with one buffer: allocating takes longer than the sums."""
    distances = None
    for image in images:
        distances = torch.empty_like(image) if distances is None else distances
        mean = image.mean(1, keepdim=True)
        torch.sub(image, mean, out=distances)
        yield Moments(mean.squeeze(1), distances.square_().mean(1))


def _stacked(moments: Iterable[tuple[Tensor, Tensor]]) -> Moments:
    means, variances = zip(*moments, strict=True)
    return Moments(torch.stack(means), torch.stack(variances))


def unbiased_factor(count: int, variance: Variance) -> float:
    """Return the factor from the biased variance of `count` values to the chosen estimate; 1 if undefined."""
    return count / (count - 1) if variance == "unbiased" and count > 1 else 1.0


def in_float32(x: Tensor) -> Tensor:
    """Return values in at least float32; sums of half-precision activations lose digits."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
