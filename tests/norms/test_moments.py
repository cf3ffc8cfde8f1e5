import pytest
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


LAYOUTS = {
    "maps": lambda x: x.contiguous(),
    "channels last": lambda x: x.movedim(1, -1).contiguous().movedim(-1, 1),
    "a part of larger images": lambda x: torch.cat([x, x], -1)[..., : x.shape[-1]],
    "flipped": lambda x: x.transpose(-1, -2).contiguous().transpose(-1, -2) if x.ndim > 3 else x,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(7, 5, 6), (7, 5, 4, 3), (7, 5, 2, 3, 4), (7, 5, 1, 1), (1, 5, 4, 3), (7, 1, 4, 3)])
def test_moments_of_images_are_theirs_in_any_layout(shape, layout):
    x = LAYOUTS[layout](3 + batch(*shape, dtype=torch.float64))
    flat, got = x.reshape(*shape[:2], -1), image_moments(x)
    torch.testing.assert_close(got.mean, flat.mean(2), atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(got.var, flat.var(2, correction=0), atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_large_images_lose_no_digits(layout):
    x = LAYOUTS[layout](2 + batch(2, 3, 160, 160))
    expected, got = x.double().flatten(2), image_moments(x)
    torch.testing.assert_close(got.mean.double(), expected.mean(2), rtol=1e-6, atol=0)
    torch.testing.assert_close(got.var.double(), expected.var(2, correction=0), rtol=1e-6, atol=0)


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
