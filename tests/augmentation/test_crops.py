import pytest
import torch
import torch.nn.functional as F

from domainadaptor.augmentation.crops import _crop_box, random_views
from domainadaptor.errors import BadBatch
from tests.conftest import batch


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_each_view_is_a_flip_and_a_resized_crop_of_its_image():
    """The same draws, spelled out: whether to flip, then the box."""
    x, draws = batch(3, 2, 9, 12), generator(5)
    views = random_views(x, 2, generator(5))
    for at, view in enumerate(views):
        image = x[at % 3]
        flip = float(torch.rand((), generator=draws)) < 0.5
        top, left, height, width = _crop_box(9, 12, draws)
        crop = image[:, top : top + height, left : left + width]
        expected = F.interpolate(crop[None], size=(9, 12), mode="bilinear", align_corners=False)[0]
        assert torch.equal(view, expected.flip(-1) if flip else expected)


def test_boxes_lie_inside_with_the_area_and_aspect_of_the_paper():
    draws = generator()
    boxes = [_crop_box(100, 120, draws) for _ in range(500)]
    for top, left, height, width in boxes:
        assert 0 <= top <= 100 - height
        assert 0 <= left <= 120 - width
        assert 0.78 <= height * width / 12000 <= 1.0
        assert 0.73 <= width / height <= 1.36
    assert len({box[:2] for box in boxes}) > 50


def test_the_same_seed_draws_the_same_views():
    x = batch(4, 3, 8, 8)
    assert torch.equal(random_views(x, 3, generator(1)), random_views(x, 3, generator(1)))
    assert not torch.equal(random_views(x, 3, generator(1)), random_views(x, 3, generator(2)))


def test_channels_last_is_kept():
    x = batch(4, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    assert random_views(x, 2, generator()).is_contiguous(memory_format=torch.channels_last)


def test_images_are_needed():
    with pytest.raises(BadBatch, match=r"\(N, C, H, W\)"):
        random_views(batch(4, 3, 8), 2, generator())


def test_one_pixel_images_work():
    assert random_views(batch(2, 3, 1, 1), 3, generator()).shape == (6, 3, 1, 1)
