"""Sums over images against all images at once, and the shift against its formula in loops."""

import math

import pytest
import torch

from domainadaptor.norms.moments import Moments, batch_moments, image_moments, unbiased_factor
from domainadaptor.norms.shift import ImageSums, batch_shift, share_of
from tests.conftest import batch

IMAGES = batch(9, 4, 5, 3, dtype=torch.float64)
SOURCE = Moments(torch.tensor([0.1, -0.2, 0.3, 0.0]).double(), torch.tensor([0.5, 1.0, 2.0, 1.5]).double())


def sums(images):
    return ImageSums.of(image_moments(images), images[0, 0].numel())


def literal_shift(images, source):
    """The same formula, image by image and channel by channel."""
    if len(images) == 1:
        return 0.0
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
    return distance(*source) / (sum(of_images) / len(images)) - 1 / (len(images) - 1)


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
    assert shifts.mean().abs() < 0.2 / 32  # what is taken off is 1/31


def test_images_that_do_not_differ_show_no_shift():
    assert sums(IMAGES[:1, :, :1, :1]).shift(SOURCE) == 0
    assert sums(IMAGES[:1, :, :1, :1].repeat(3, 1, 1, 1)).shift(SOURCE) == 0


@pytest.mark.parametrize("spatial", [True, False])
def test_the_shift_of_a_batch_is_that_of_its_sums(spatial):
    images = IMAGES if spatial else IMAGES[:, :, 0, 0]
    of_each = image_moments(images)
    whole = batch_moments(of_each)
    whole = Moments(whole.mean, whole.var * unbiased_factor(images.numel() // 4, "unbiased"))
    found = batch_shift(of_each, whole, SOURCE, deviations=spatial)
    assert float(found) == pytest.approx(literal_shift(images, SOURCE), rel=1e-12)


def test_a_single_image_shows_no_shift():
    of_each = image_moments(IMAGES[:1])
    assert batch_shift(of_each, batch_moments(of_each), SOURCE, deviations=True) == 0


def test_the_share_grows_with_the_shift_to_its_limit():
    shares = share_of(torch.tensor([-0.1, 0.0, 1 / 64, 0.1, 0.2, 0.5, 2.0, 1e9]), 64)
    assert shares.equal(shares.sort().values)
    assert not shares[:3].any()
    assert shares[-1].item() == pytest.approx(0.4)


def test_the_share_grows_with_the_images():
    shares = torch.stack([share_of(torch.tensor(0.5), images) for images in (2, 4, 16, 64, 256)])
    assert shares.equal(shares.sort().values)
    assert shares[0] == 0
    assert shares[-1].item() == pytest.approx(0.4 * (0.5 - 1 / 256) / (0.6 + 1 / 256))
