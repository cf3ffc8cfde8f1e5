import torch

from domainadaptor.norms.moments import Moments, batch_moments, image_moments, unbiased_factor
from tests.conftest import batch


def test_batch_moments_derived_from_images_are_those_of_all_values():
    x = batch(7, 5, 4, 3, dtype=torch.float64)
    got = batch_moments(image_moments(x))
    torch.testing.assert_close(got.mean, x.mean((0, 2, 3)), atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(got.var, x.var((0, 2, 3), correction=0), atol=1e-12, rtol=1e-12)


def test_far_from_zero_nothing_cancels():
    x = 1e4 + batch(7, 5, 16, 16)
    got = batch_moments(image_moments(x))
    torch.testing.assert_close(got.var.double(), x.double().var((0, 2, 3), correction=0), rtol=1e-3, atol=0)


def test_vectors_count_as_one_by_one_maps():
    x = batch(7, 5)
    images = image_moments(x)
    assert torch.equal(images.mean, x)
    assert torch.equal(images.var, torch.zeros(7, 5))


def test_mix_weighs_the_first():
    one, other = Moments(torch.ones(2), torch.ones(2)), Moments(torch.zeros(2), torch.zeros(2))
    assert torch.equal(one.mix(other, 0.25).mean, torch.full((2,), 0.25))


def test_unbiased_factor_is_one_where_undefined():
    assert unbiased_factor(1, "unbiased") == 1
    assert unbiased_factor(4, "unbiased") == 4 / 3
    assert unbiased_factor(4, "biased") == 1
