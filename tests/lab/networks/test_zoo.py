import pytest
import torch
from PIL import Image

from domainadaptor.errors import BadFile, BadOption
from domainadaptor.lab.networks.zoo import find_network


@pytest.mark.parametrize(
    ("name", "full", "size", "mean"),
    [
        ("resnet18", "torchvision:resnet18", 224, 0.485),
        ("timm:resnet18", "timm:resnet18", 224, 0.485),
        ("torchvision:mobilenet_v2", "torchvision:mobilenet_v2", 224, 0.485),
        ("tf_efficientnet_lite0", "timm:tf_efficientnet_lite0", 224, 0.5),
        ("inception_v3", "torchvision:inception_v3", 299, 0.485),
        ("resnet20", "cifar:resnet20", 32, 0.485),
        ("timm:resnet18.a1_in1k", "timm:resnet18.a1_in1k", 224, 0.485),
    ],
)
def test_names_and_their_preprocessing(name, full, size, mean):
    plan = find_network(name)
    assert plan.name == full
    assert plan.preprocessing.size == size
    assert plan.preprocessing.mean[0] == mean
    picture = Image.new("RGB", (300, 400), (128, 0, 255))
    assert plan.preprocessing.transform()(picture).shape == (3, size, size)


def test_building_is_repeatable_and_leaves_the_global_generator_alone():
    state = torch.get_rng_state()
    one, other = (find_network("timm:mobilenetv3_small_050").build(7, seed=3) for _ in range(2))
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert one(torch.zeros(2, 3, 64, 64)).shape == (2, 7)


def test_a_long_thin_image_is_refused_before_it_fills_the_memory():
    transform = find_network("resnet18").preprocessing.transform()
    with pytest.raises(BadFile, match="too long and thin"):
        transform(Image.new("RGB", (1, 60_000)))
    assert transform(Image.new("RGB", (10, 400))).shape == (3, 224, 224)


def test_squashed_images_lose_no_part():
    plan = find_network("timm:tf_efficientnetv2_b3").preprocessing
    assert plan.squash
    assert plan.transform()(Image.new("RGB", (100, 900))).shape == (3, plan.size, plan.size)


def test_another_size_keeps_the_share_of_the_image():
    small = find_network("resnet18").preprocessing.at(64)
    assert (small.size, small.resize) == (64, 73)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("resnt18", "did you mean 'resnet18'"),
        ("tim:resnet18", "did you mean 'timm'"),
        ("timm:resnet18.nope", "leave out"),
        ("torchvision:lcnet_035", "unknown network"),
        ("cifar:resnet18", "unknown network"),
        ("timm:vit_base_patch16_sapiens2", "not square"),
    ],
)
def test_unknown_names_are_answered(name, hint):
    with pytest.raises(BadOption, match=hint):
        find_network(name)


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("resnet18", ("fc.weight", "fc.bias")),
        ("resnet110", ("linear.weight", "linear.bias")),
        ("timm:resnetv2_18", ("head.fc.weight", "head.fc.bias")),
        ("vit_b_16", ("heads.head.weight", "heads.head.bias")),
        ("regnet_y_400mf", ("fc.weight", "fc.bias")),  # cannot be built without values
        ("inception_v3", ("AuxLogits.fc.weight", "AuxLogits.fc.bias", "fc.weight", "fc.bias")),
    ],
)
def test_the_tensors_that_depend_on_the_classes_are_known(name, head):
    assert find_network(name).head_tensors() == head


def test_a_network_that_is_published_without_a_head_gets_one():
    plan = find_network("timm:vit_tiny_patch16_224")
    assert plan.classes == 1000
    assert find_network("timm:vit_small_patch14_dinov2").classes == 1000
