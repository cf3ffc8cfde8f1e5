"""Each step against torchvision's, image by image."""

import pytest
import torch
from torchvision.transforms import functional as TF

from domainadaptor.lab.data.augment import (
    adjust_brightness,
    adjust_contrast,
    adjust_hue,
    adjust_saturation,
    augment,
    crop_and_flip,
    crop_boxes,
    cropped,
    jitter,
)


def drawn(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def images():
    """Noise, and flat colors with the corners of the color cube, where a hue is easily wrong."""
    flat = torch.tensor([[0, 0, 0], [1, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0.3, 0.3, 0.3]])
    noise = torch.rand(5, 3, 16, 20, generator=drawn())
    return torch.cat([noise, flat.view(-1, 3, 1, 1).expand(-1, 3, 16, 20)])


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (adjust_brightness, TF.adjust_brightness),
        (adjust_contrast, TF.adjust_contrast),
        (adjust_saturation, TF.adjust_saturation),
    ],
)
def test_factors(images, ours, theirs):
    factors = torch.linspace(0.6, 1.4, len(images))
    expected = torch.stack([theirs(image, float(factor)) for image, factor in zip(images, factors, strict=True)])
    torch.testing.assert_close(ours(images, factors), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("turn", [-0.4, -0.17, 0.0, 0.05, 1 / 3, 0.4])
def test_hue(images, turn):
    expected = torch.stack([TF.adjust_hue(image, turn) for image in images])
    turned = adjust_hue(images, torch.full((len(images),), turn))
    torch.testing.assert_close(turned, expected, atol=1e-5, rtol=0)


def test_hues_are_turned_image_by_image(images):
    turns = torch.linspace(-0.4, 0.4, len(images))
    expected = torch.stack([TF.adjust_hue(image, float(turn)) for image, turn in zip(images, turns, strict=True)])
    torch.testing.assert_close(adjust_hue(images, turns), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("box", [(0, 0, 16, 20), (2, 3, 12, 14), (1, 0, 15, 10), (4, 4, 12, 16)])
@pytest.mark.parametrize("flip", [False, True])
def test_crops(images, box, flip):
    size = 24
    found = cropped(images, torch.tensor([box] * len(images)).float(), torch.tensor([flip] * len(images)), size)
    expected = torch.stack([TF.resized_crop(image, *box, [size, size], antialias=False) for image in images])
    expected = TF.hflip(expected) if flip else expected
    # torchvision crops before it resizes, and so knows nothing of the pixels outside.
    torch.testing.assert_close(found[..., 2:-2, 2:-2], expected[..., 2:-2, 2:-2], atol=1e-5, rtol=0)


def test_a_crop_of_everything_is_the_image(images):
    whole = torch.tensor([[0.0, 0.0, 16.0, 20.0]] * len(images))
    square = images[..., :16]
    untouched = cropped(square, whole.clone().index_fill_(1, torch.tensor([3]), 16.0), torch.zeros(len(images)), 16)
    torch.testing.assert_close(untouched, square, atol=1e-6, rtol=0)


@pytest.mark.parametrize(("height", "width"), [(100, 100), (60, 200)])
def test_boxes_are_inside_and_of_the_wanted_sizes(height, width):
    top, left, high, wide = crop_boxes(4000, height, width, drawn()).unbind(1)
    assert float(top.min()) >= 0
    assert float(left.min()) >= 0
    assert float((top + high).max()) <= height + 1e-3
    assert float((left + wide).max()) <= width + 1e-3
    share, ratio = high * wide / (height * width), wide / high
    free = (high < height) & (wide < width)  # not cut to the image
    assert bool(((share >= 0.8 - 1e-4) & (share <= 1 + 1e-4))[free].all())
    assert bool(((ratio >= 3 / 4 - 1e-4) & (ratio <= 4 / 3 + 1e-4))[free].all())
    if height == width:
        assert float(share[free].max()) > 0.93
        assert abs(float(ratio.log().mean())) < 0.02  # as often wide as high


def test_half_of_the_images_are_mirrored():
    ramp = torch.linspace(0, 1, 16).expand(400, 3, 16, 16)
    made = crop_and_flip(ramp, 16, drawn())
    mirrored = made[:, 0, 8, 0] > made[:, 0, 8, -1]
    assert 0.4 < float(mirrored.float().mean()) < 0.6


def test_jitter_is_torchvisions_four_steps_in_an_order_of_the_batch(images):
    """Undone by trying every order with the factors that the generator gave."""
    from itertools import permutations

    found = jitter(images, drawn(3))
    generator = drawn(3)
    n = len(images)
    factors = torch.empty(3, n).uniform_(0.6, 1.4, generator=generator)
    turns = torch.empty(n).uniform_(-0.4, 0.4, generator=generator)
    steps = (TF.adjust_brightness, TF.adjust_contrast, TF.adjust_saturation)

    def in_order(order):
        made = []
        for at, image in enumerate(images):
            for kind in order:
                value = turns[at] if kind == 3 else factors[kind][at]
                image = (TF.adjust_hue if kind == 3 else steps[kind])(image, float(value))
            made.append(image)
        return torch.stack(made)

    assert any(torch.allclose(found, in_order(order), atol=1e-4) for order in permutations(range(4)))


def test_the_generator_decides_alone(images):
    before = torch.get_rng_state()
    assert torch.equal(augment(images, 12, drawn(1)), augment(images, 12, drawn(1)))
    assert not torch.equal(augment(images, 12, drawn(1)), augment(images, 12, drawn(2)))
    assert torch.equal(torch.get_rng_state(), before)
    made = augment(images, 12, drawn(1))
    assert made.shape == (len(images), 3, 12, 12)
    assert float(made.min()) >= 0
    assert float(made.max()) <= 1
