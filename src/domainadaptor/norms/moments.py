"""Means and variances of activations: of each image, of the batch, of the source."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

Variance = Literal["unbiased", "biased"]
VARIANCES: tuple[Variance, ...] = ("unbiased", "biased")


class Moments(NamedTuple):
    """A mean and a variance per channel, perhaps of several images at once."""

    mean: Tensor  # (..., C)
    var: Tensor  # (..., C)

    def mix(self, other: "Moments", weight: Tensor | float) -> "Moments":
        """The mixture weight * self + (1 - weight) * other."""
        return Moments(*(weight * mine + (1 - weight) * theirs for mine, theirs in zip(self, other, strict=True)))


def image_moments(x: Tensor) -> Moments:
    """Mean and biased variance of each image and channel over space, (N, C) each."""
    flat = in_float32(x).flatten(2) if x.ndim > 2 else in_float32(x).unsqueeze(2)
    var, mean = torch.var_mean(flat, dim=2, correction=0)
    return Moments(mean, var)


def batch_moments(images: Moments) -> Moments:
    """Mean and biased variance of the whole batch, derived from those of its images, (C,) each."""
    spread, mean = torch.var_mean(images.mean, dim=0, correction=0)
    return Moments(mean, images.var.mean(0) + spread)


def unbiased_factor(count: int, variance: Variance) -> float:
    """What turns a biased variance of `count` values into the chosen estimate; 1 where that is undefined."""
    return count / (count - 1) if variance == "unbiased" and count > 1 else 1.0


def in_float32(x: Tensor) -> Tensor:
    """The same values in at least float32: sums over half-precision activations lose digits otherwise."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
