import pytest
import torch
from PIL import Image

from domainadaptor.errors import BadFile, BadOption
from domainadaptor.networks.zoo import blueprint


@pytest.mark.parametrize(
    ("name", "full", "size", "mean"),
    [
        ("resnet18", "torchvision:resnet18", 224, 0.485),
        ("timm:resnet18", "timm:resnet18", 224, 0.485),
        ("torchvision:mobilenet_v2", "torchvision:mobilenet_v2", 224, 0.485),
        ("tf_efficientnet_lite0", "timm:tf_efficientnet_lite0", 224, 0.5),
        ("inception_v3", "torchvision:inception_v3", 299, 0.485),
    ],
)
def test_names_and_their_preprocessing(name, full, size, mean):
    plan = blueprint(name)
    assert plan.name == full
    assert plan.preprocessing.size == size
    assert plan.preprocessing.mean[0] == mean
    picture = Image.new("RGB", (300, 400), (128, 0, 255))
    assert plan.preprocessing.transform()(picture).shape == (3, size, size)


def test_building_is_repeatable_and_leaves_the_global_generator_alone():
    state = torch.get_rng_state()
    one, other = (blueprint("timm:mobilenetv3_small_050").build(7, seed=3) for _ in range(2))
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert one(torch.zeros(2, 3, 64, 64)).shape == (2, 7)


def test_a_long_thin_image_is_refused_before_it_fills_the_memory():
    transform = blueprint("resnet18").preprocessing.transform()
    with pytest.raises(BadFile, match="too long and thin"):
        transform(Image.new("RGB", (1, 60_000)))
    assert transform(Image.new("RGB", (10, 400))).shape == (3, 224, 224)


def test_squashed_images_lose_no_part():
    plan = blueprint("timm:tf_efficientnetv2_b3").preprocessing
    assert plan.squash
    assert plan.transform()(Image.new("RGB", (100, 900))).shape == (3, plan.size, plan.size)


def test_another_size_keeps_the_share_of_the_image():
    small = blueprint("resnet18").preprocessing.at(64)
    assert (small.size, small.resize) == (64, 73)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("resnt18", "did you mean 'resnet18'"),
        ("tim:resnet18", "did you mean 'timm'"),
        ("timm:resnet18.nope", "leave out"),
        ("torchvision:lcnet_035", "unknown network"),
    ],
)
def test_unknown_names_are_answered(name, hint):
    with pytest.raises(BadOption, match=hint):
        blueprint(name)
