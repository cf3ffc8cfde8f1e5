"""Sums over images against all images at once, and the shift against its formula in loops."""

import math

import pytest
import torch

from domainadaptor.norms.moments import Moments, image_moments
from domainadaptor.norms.shift import ImageSums, share_of
from tests.conftest import batch

IMAGES = batch(9, 4, 5, 3, dtype=torch.float64)
SOURCE = Moments(torch.tensor([0.1, -0.2, 0.3, 0.0]).double(), torch.tensor([0.5, 1.0, 2.0, 1.5]).double())


def sums(images):
    return ImageSums.of(image_moments(images), images[0, 0].numel())


def literal_shift(images, source):
    """The same formula, image by image and channel by channel."""
    channels = images.shape[1]
    joint = [images[:, c].flatten() for c in range(channels)]
    spatial = images.ndim > 2 and images[0, 0].numel() > 1

    def distance(means, variances):
        total = 0.0
        for c in range(channels):
            total += float(means[c] - joint[c].mean()) ** 2
            if spatial:
                total += (math.sqrt(variances[c]) - math.sqrt(joint[c].var(correction=1))) ** 2
        return total / channels

    of_images = [
        distance([image[c].mean() for c in range(channels)], [image[c].var(correction=0) for c in range(channels)])
        for image in images
    ]
    return distance(*source) / (sum(of_images) / len(images)) - 1 / len(images)


@pytest.mark.parametrize("sizes", [[9], [4, 5], [1] * 9])
def test_statistics_of_parts_are_those_of_all_images(sizes):
    first, *others = map(sums, IMAGES.split(sizes))
    for other in others:
        first = first.plus(other)
    values = IMAGES.transpose(0, 1).flatten(1)
    torch.testing.assert_close(first.moments().mean, values.mean(1), atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(first.moments().var, values.var(1, correction=1), atol=1e-12, rtol=1e-12)
    assert first.shift(SOURCE) == pytest.approx(literal_shift(IMAGES, SOURCE), rel=1e-12)


def test_without_space_only_means_count():
    vectors = IMAGES[:, :, 0, 0]
    assert sums(vectors[:, :, None, None]).shift(SOURCE) == pytest.approx(literal_shift(vectors, SOURCE), rel=1e-12)
    assert ImageSums.of(image_moments(vectors), 1).shift(SOURCE) == pytest.approx(
        literal_shift(vectors, SOURCE), rel=1e-12
    )


def test_without_a_shift_it_is_zero_on_average():
    source = Moments(torch.zeros(4).double(), torch.ones(4).double())
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn((500, 32, 4, 6, 6), generator=generator, dtype=torch.float64)
    shifts = torch.tensor([sums(images).shift(source) for images in drawn])
    assert shifts.mean().abs() < 0.2 / 32  # what is taken off is 1/32


def test_images_that_do_not_differ_show_no_shift():
    assert sums(IMAGES[:1, :, :1, :1]).shift(SOURCE) == 0
    assert sums(IMAGES[:1, :, :1, :1].repeat(3, 1, 1, 1)).shift(SOURCE) == 0


def test_the_share_grows_with_the_shift_to_its_limit():
    shares = [share_of(shift) for shift in (-0.1, 0.0, 0.1, 0.2, 0.5, 2.0, 1e9)]
    assert shares == sorted(shares)
    assert shares[0] == shares[1] == 0
    assert shares[-1] == pytest.approx(0.5)
