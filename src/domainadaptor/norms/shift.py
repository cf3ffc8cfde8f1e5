"""How far the statistics of a domain are from the source model's, and how much of them to use."""

from typing import NamedTuple

import torch
from torch import Tensor

from domainadaptor.norms.moments import Moments, unbiased_factor

_LARGEST = 0.4  # share of target statistics
_HALF = 0.1  # a shift of this size gets half of that, with many images


class ImageSums(NamedTuple):
    """Sums over the images that a layer has seen, from which their joint statistics follow. (C,) each, in float64."""

    images: int
    values: int  # per channel
    spatial: bool  # an image has several values per channel, so that it has a deviation of its own
    means: Tensor
    squared_means: Tensor
    variances: Tensor
    deviations: Tensor

    @classmethod
    def of(cls, images: Moments, space: int) -> "ImageSums":
        """Return the sums over the images of a batch, given their biased moments and the values per channel of each."""
        mean, var = (moment.cpu().double() for moment in images)  # not every device has float64
        sums = (mean.sum(0), mean.square().sum(0), var.sum(0), var.sqrt().sum(0))
        return cls(len(mean), len(mean) * space, space > 1, *sums)

    def plus(self, other: "ImageSums") -> "ImageSums":
        """Return the sums over the images of both."""
        ours, theirs = self[3:], other[3:]
        sums = (mine + more for mine, more in zip(ours, theirs, strict=True))
        return ImageSums(self.images + other.images, self.values + other.values, self.spatial or other.spatial, *sums)

    def moments(self) -> Moments:
        """Return mean and unbiased variance of all values."""
        mean = self.means / self.images
        var = self.variances / self.images + self._variance_of_means()
        return Moments(mean, var * unbiased_factor(self.values, "unbiased"))

    def shift(self, source: Moments) -> float:
        """Return the squared distance from the source statistics, in units of that between an image and all images.

        What is expected by chance, because the images are few, is taken off: without a shift, the mean is 0.
        """
        target = self.moments()
        spread = self._variance_of_means().mean()
        distance = (source.mean - target.mean).square().mean()
        if self.spatial:
            deviation = target.var.sqrt()
            of_images = self.variances - 2 * deviation * self.deviations + self.images * target.var
            spread = spread + of_images.mean().clamp(min=0) / self.images
            distance = distance + (source.var.sqrt() - deviation).square().mean()
        if self.images == 1 or spread <= 0:  # one image, or the same one again and again
            return 0.0
        return float(distance / spread) - 1 / (self.images - 1)

    def _variance_of_means(self) -> Tensor:
        return (self.squared_means / self.images - (self.means / self.images).square()).clamp(min=0)


def batch_shift(images: Moments, batch: Moments, source: Moments, deviations: bool) -> Tensor:
    """Return the shift of one batch as `ImageSums.shift` defines it, on the batch's device.

    Args:
        images: Moments of each image, (N, C).
        batch: Moments of the batch, (C,).
        source: Those of the source model.
        deviations: Whether an image has several values per channel, so that it has a deviation of its own.
    """

    def distance(one: Moments) -> Tensor:
        means = (one.mean - batch.mean).square().mean()
        return means + (one.var.sqrt() - batch.var.sqrt()).square().mean() if deviations else means

    count, spread = number_of(images.mean), distance(images)
    return torch.where((count > 1) & (spread > 0), distance(source) / spread - 1 / (count - 1), 0.0)


def number_of(rows: Tensor) -> Tensor:
    """Return how many rows there are as a tensor, so that an exported graph computes it for each batch."""
    return rows.new_ones(rows.shape[:1]).sum()


def share_of(shift: Tensor, images: int | Tensor) -> Tensor:
    """Return how much of the target statistics to use in a layer with this shift, measured on so many images.

    The fewer there are, the less certain are shift and statistics: a shift of 1 / images counts as none, and half of
    the largest share needs a larger one. All constants were chosen on development sets (docs/auto.md).
    """
    certain = (shift - 1 / images).clamp(min=0)
    return _LARGEST * certain / (certain + _HALF + 2 / images)
