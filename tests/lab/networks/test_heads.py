import pytest
import torch
from torch import nn

from domainadaptor.errors import UnsupportedNetwork
from domainadaptor.lab.networks.heads import find_head, head_width, logits_and_features, remove_head_bias
from domainadaptor.lab.networks.zoo import find_network
from tests.conftest import GoldenNet, batch


@pytest.mark.parametrize(
    ("name", "classes", "head", "width"),
    [
        ("resnet18", 7, "fc", 512),
        ("resnet20", 10, "linear", 64),
        ("resnet20", 64, "linear", 64),  # as many as there are channels
        ("mobilenet_v2", 7, "classifier.1", 1280),
        ("inception_v3", 7, "fc", 2048),  # there is an auxiliary head, too
        ("tf_efficientnet_lite0", 65, "classifier", 1280),
        ("timm:resnet18.a1_in1k", 7, "fc", 512),
        ("timm:resnetv2_18", 7, "head.fc", 512),  # a convolution
        ("squeezenet1_1", 7, "classifier.1", 512),  # a convolution before the mean
    ],
)
def test_heads_are_found(name, classes, head, width):
    with torch.device("meta"):
        network = find_network(name).make(classes)
    assert find_head(network, classes) == head
    assert head_width(network, head) == width
    remove_head_bias(network, classes)
    assert network.get_submodule(head).bias is None
    assert f"{head}.bias" not in network.state_dict()


def test_no_head_is_refused_with_what_is_expected():
    with pytest.raises(UnsupportedNetwork, match=r"GoldenNet has no linear layer or 1x1 convolution with 9 outputs"):
        find_head(GoldenNet(), 9)
    with pytest.raises(UnsupportedNetwork):
        find_head(nn.Sequential(nn.Conv2d(3, 9, 3)), 9)


@pytest.mark.parametrize("name", ["resnet20", "timm:resnetv2_18"])
def test_the_head_of_the_features_makes_the_logits(name):
    network, x = find_network(name).build(7), batch(2, 3, 32, 32)
    layer = network.get_submodule(head := find_head(network, 7))
    logits, features = logits_and_features(network, head, x)
    assert torch.equal(logits, network(x))
    assert features.shape == (2, head_width(network, head))
    torch.testing.assert_close(features @ layer.weight.flatten(1).T + layer.bias, logits)
    assert not layer._forward_pre_hooks


def test_features_keep_their_gradient_and_the_hook_goes_after_an_error():
    network = GoldenNet()
    logits_and_features(network, "fc", batch(2, 3, 8, 8))[1].sum().backward()
    assert network.c1.weight.grad is not None
    with pytest.raises(RuntimeError):
        logits_and_features(network, "fc", batch(2, 5, 8, 8))
    assert not network.fc._forward_pre_hooks


def test_a_head_that_is_never_called_is_told():
    network = nn.Sequential(nn.Identity())
    network.unused = nn.Linear(2, 3)
    network.forward = lambda x: x
    with pytest.raises(UnsupportedNetwork, match="did not call its head"):
        logits_and_features(network, "unused", torch.zeros(1, 2))
