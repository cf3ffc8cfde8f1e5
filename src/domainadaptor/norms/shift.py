"""How far the statistics of a domain are from the source model's, and how much of them to use."""

from typing import NamedTuple

from torch import Tensor

from domainadaptor.norms.moments import Moments, unbiased_factor

_CHANCE = 0.15  # shifts up to this are also seen on images like the training images
_HALF = 0.1  # a shift this far above chance gets half of the largest share
_LARGEST = 0.5  # share of target statistics


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
        if spread <= 0:  # one image, or the same one again and again
            return 0.0
        return float(distance / spread) - 1 / self.images

    def _variance_of_means(self) -> Tensor:
        return (self.squared_means / self.images - (self.means / self.images).square()).clamp(min=0)


def share_of(shift: float) -> float:
    """Return how much of the target statistics to use in a layer with this shift."""
    excess = max(0.0, shift - _CHANCE)
    return _LARGEST * excess / (excess + _HALF)
