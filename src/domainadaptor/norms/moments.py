"""Means and variances of activations: of each image, of the batch, of the source."""

import functools
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Variance = Literal["unbiased", "biased"]
_ADDED = 256


class Moments(NamedTuple):
    """A mean and a variance per channel, perhaps of several images at once."""

    mean: Tensor  # (..., C)
    var: Tensor  # (..., C)

    def mix(self, other: "Moments", weight: Tensor | float) -> "Moments":
        """The mixture weight * self + (1 - weight) * other."""
        return Moments(*(weight * mine + (1 - weight) * theirs for mine, theirs in zip(self, other, strict=True)))


def image_moments(x: Tensor) -> Moments:
    """Mean and biased variance of each image and channel over space, (N, C) each."""
    if x.ndim < 3:
        mean = in_float32(x)
        return Moments(mean, torch.zeros_like(mean))
    if x.device.type != "cpu":
        var, mean = torch.var_mean(in_float32(x).flatten(2), dim=2, correction=0)
        return Moments(mean, var)
    # torch.var_mean is ten times slower on a CPU. One image at a time is still in the cache when it is read again.
    last = x.movedim(1, -1)
    if not last.is_contiguous():
        return _stacked(_each(in_float32(image).flatten(1) for image in x))
    # Channels lie side by side. The kernel adds row to row, which loses digits over many: several pixels make a row.
    pixels = last[0].numel() // x.shape[1]
    groups = _groups(pixels)
    rows = last.reshape(len(x), pixels // groups, -1)
    of_groups = [torch.batch_norm_update_stats(in_float32(image), None, None, 0.0) for image in rows]
    means, variances = (moment.unflatten(1, (groups, -1)) for moment in _stacked(of_groups))
    return _joined(Moments(means, variances), dim=1)


@functools.cache
def _groups(pixels: int) -> int:
    """Into how many equal parts to divide pixels, so that few enough are added up one after the other."""
    fitting = (groups for groups in range(1, pixels + 1) if pixels % groups == 0 and pixels // groups <= _ADDED)
    return next(fitting, 1)


def batch_moments(images: Moments) -> Moments:
    """Mean and biased variance of the whole batch, derived from those of its images, (C,) each."""
    return _joined(images, dim=0)


def _joined(parts: Moments, dim: int) -> Moments:
    """The moments of equally many values each, as those of all of them."""
    mean, spread = _moments(parts.mean, dim)
    return Moments(mean, parts.var.mean(dim) + spread)


def _moments(values: Tensor, dim: int) -> Moments:
    mean = values.mean(dim, keepdim=True)
    return Moments(mean.squeeze(dim), (values - mean).square_().mean(dim))


def _each(images: Iterable[Tensor]) -> Iterator[Moments]:
    """Of images (C, S), in one piece of memory: to ask the system for a new one takes longer than the sums."""
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
    """What turns a biased variance of `count` values into the chosen estimate; 1 where that is undefined."""
    return count / (count - 1) if variance == "unbiased" and count > 1 else 1.0


def in_float32(x: Tensor) -> Tensor:
    """The same values in at least float32: sums over half-precision activations lose digits otherwise."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
