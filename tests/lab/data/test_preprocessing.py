import numpy as np
import pytest
import timm
import torch
import torchvision
from PIL import Image
from timm.data import create_transform, resolve_data_config
from torchvision.transforms.functional import to_tensor

from domainadaptor.lab.data.preprocessing import Preprocessing, squashed
from domainadaptor.lab.networks.zoo import find_network


def picture(width: int, height: int, seed: int = 0) -> Image.Image:
    """Smooth colors with edges, so that interpolation shows."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 255, (7, 9, 3), dtype=np.uint8))
    return small.resize((width, height), Image.Resampling.NEAREST)


SHAPES = [(500, 375), (227, 227), (97, 300), (32, 32)]
NETWORKS = ["resnet18", "resnet20", "tf_efficientnet_lite0", "timm:tf_efficientnetv2_b0", "timm:resnet18.a1_in1k"]


@pytest.mark.parametrize("size", SHAPES)
@pytest.mark.parametrize("name", NETWORKS)
def test_fitting_then_normalizing_is_the_whole(name, size):
    plan = find_network(name).preprocessing
    image = picture(*size)
    fitted = plan.fit(image)
    assert fitted.size == (plan.size, plan.size)
    assert torch.equal(plan.normalized(to_tensor(fitted)[None])[0], plan.transform()(image))


@pytest.mark.parametrize("size", SHAPES)
@pytest.mark.parametrize("name", ["resnet18", "resnet50", "mobilenet_v2", "efficientnet_b1", "inception_v3"])
def test_torchvision_networks_see_what_torchvision_shows_them(name, size):
    published = torchvision.models.get_model_weights(name).DEFAULT.transforms()
    image = picture(*size)
    assert torch.equal(find_network(f"torchvision:{name}").preprocessing.transform()(image), published(image))


@pytest.mark.parametrize("size", SHAPES)
@pytest.mark.parametrize(
    "name", ["tf_efficientnet_lite0", "resnet18.a1_in1k", "mobilenetv3_small_050", "tf_efficientnetv2_b0"]
)
def test_timm_networks_see_what_timm_shows_them(name, size):
    """Bicubic ones, bilinear ones, and one that squashes."""
    config = resolve_data_config(pretrained_cfg=timm.get_pretrained_cfg(name).to_dict())
    published = create_transform(**config)
    image = picture(*size)
    assert torch.equal(find_network(f"timm:{name}").preprocessing.transform()(image), published(image))


def test_normalizing_keeps_precision_and_place():
    pixels = torch.rand(2, 3, 4, 4, dtype=torch.float64)
    plan = squashed(4, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    got = plan.normalized(pixels)
    assert got.dtype == torch.float64
    for channel, (mean, std) in enumerate([(0.1, 0.4), (0.2, 0.5), (0.3, 0.6)]):
        torch.testing.assert_close(got[:, channel], (pixels[:, channel] - mean) / std, atol=1e-15, rtol=1e-15)


def test_squashed_images_are_seen_whole():
    image = Image.new("RGB", (60, 20))
    image.paste((255, 255, 255), (0, 0, 3, 20))  # a bar at the edge, which a center crop would lose
    assert np.asarray(squashed(10).fit(image))[:, 0].min() > 100
    assert np.asarray(Preprocessing(10, 10).fit(image)).max() == 0


def test_words_say_all_of_it():
    words = Preprocessing(160, 180, (0.5, 0.5, 0.5), (0.25, 0.5, 1.0), "bicubic").sentence()
    assert words == "shorter side to 180 (bicubic), center crop 160, mean 0.5 0.5 0.5, deviation 0.25 0.5 1"
    assert squashed(64).sentence().startswith("both sides to 64 (bilinear)")


def test_another_size_keeps_all_else():
    plan = Preprocessing(200, 250, (0.5, 0.5, 0.5), (0.25, 0.5, 1.0), "bicubic", squash=True)
    assert plan.at(100) == Preprocessing(100, 125, (0.5, 0.5, 0.5), (0.25, 0.5, 1.0), "bicubic", squash=True)
