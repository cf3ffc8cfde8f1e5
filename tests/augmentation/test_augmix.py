"""AugMix's changes against torchvision's and Pillow's, and its mixtures by their weights."""

import numpy as np
import pytest
import torch

from domainadaptor.augmentation import augmix
from domainadaptor.augmentation.augmix import augmix_views, autocontrast, equalize, posterize, solarize
from domainadaptor.augmentation.crops import affine, random_views

LEVELS = (torch.rand(2, 3, 40, 40, generator=torch.Generator().manual_seed(0)) ** 2 * 200 + 20).to(torch.uint8)
PIXELS = LEVELS.double() / 255


def levels(pixels):
    return (pixels * 255).round().to(torch.uint8)


def test_changes_of_levels_are_pillows():
    Image = pytest.importorskip("PIL.Image")
    ImageOps = pytest.importorskip("PIL.ImageOps")
    tv = pytest.importorskip("torchvision.transforms.functional")
    for image, made in zip(LEVELS, levels(equalize(PIXELS)), strict=True):
        theirs = ImageOps.equalize(Image.fromarray(image.permute(1, 2, 0).numpy()))
        assert np.array_equal(np.asarray(theirs), made.permute(1, 2, 0).numpy())
    assert torch.equal(levels(posterize(PIXELS, 4)), tv.posterize(LEVELS, 4))
    assert torch.equal(levels(solarize(PIXELS, 230 / 255)), tv.solarize(LEVELS, 230))
    torch.testing.assert_close(autocontrast(PIXELS), tv.autocontrast(PIXELS))


def test_flat_and_small_images_stay():
    flat = torch.full((1, 3, 5, 5), 0.3)
    assert torch.equal(autocontrast(flat), flat)
    torch.testing.assert_close(equalize(flat), flat, atol=0.5 / 255, rtol=0)
    assert torch.isfinite(augmix_views(torch.rand(1, 3, 1, 1), 20, torch.Generator().manual_seed(0), 0.08)).all()


def test_moves_are_torchvisions():
    tv = pytest.importorskip("torchvision.transforms.functional")
    cos, sin = np.cos(np.radians(7)), np.sin(np.radians(7))
    for matrix, how in [
        ([[cos, sin, 0], [-sin, cos, 0]], {"angle": 7.0, "translate": [0, 0]}),
        ([[1, 0, -3], [0, 1, 0]], {"angle": 0.0, "translate": [3, 0]}),
        ([[1, 0, 0], [0, 1, 2]], {"angle": 0.0, "translate": [0, -2]}),
    ]:
        theirs = tv.affine(PIXELS, **how, scale=1.0, shear=[0.0, 0.0], interpolation=tv.InterpolationMode.BILINEAR)
        torch.testing.assert_close(affine(PIXELS, matrix), theirs, atol=1e-6, rtol=1e-6)
    sheared = affine(PIXELS, [[1, 1.0, 0], [0, 1, 0]])  # by one pixel a row, from the center
    torch.testing.assert_close(sheared[:, :, 20, 5], (PIXELS[:, :, 20, 5] + PIXELS[:, :, 20, 6]) / 2)


def test_views_are_mixtures_of_crops_and_chains(monkeypatch):
    """With changes that only count, a view is its crop plus a known share of counts."""
    depth = []
    monkeypatch.setattr(augmix, "OPERATIONS", (lambda x, _: depth.append(1) or x + 1,))
    views = augmix_views(PIXELS[:1], 50, torch.Generator().manual_seed(4), 0.08)
    monkeypatch.setattr(augmix, "OPERATIONS", (lambda x, _: x,))
    crops = augmix_views(PIXELS[:1], 50, torch.Generator().manual_seed(4), 0.08)
    added = (views - crops).amax((1, 2, 3))
    torch.testing.assert_close(views, crops + added.view(-1, 1, 1, 1))
    assert float(added.min()) >= 0
    assert 2.5 < float(added.max()) <= 3
    assert 1.6 < len(depth) / 150 < 2.4
    torch.testing.assert_close(crops, random_views(PIXELS[:1], 50, torch.Generator().manual_seed(4), (0.08, 1.0)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_views_are_pixels_that_differ_and_follow_the_seed(dtype):
    x = PIXELS[:1].to(dtype)
    one, again, other = (augmix_views(x, 9, torch.Generator().manual_seed(s), 0.5) for s in (0, 0, 1))
    assert one.shape == (9, 3, 40, 40)
    assert one.dtype == dtype
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert 0 <= float(one.min()) <= float(one.max()) <= 1 + 1e-6
