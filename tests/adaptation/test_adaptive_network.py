"""The network that adapts: which of its norm layers learn."""

import pytest
import torch
from torch import nn

import domainadaptor as da
from domainadaptor.errors import BadOption, UnsupportedNetwork
from tests.conftest import batch, stir


@pytest.mark.parametrize("count", range(1, 60))
def test_a_share_of_the_layers_is_not_rounded_away(count):
    network = stir(nn.Sequential(nn.Flatten(), *(nn.BatchNorm1d(4) for _ in range(count))))
    for at in {0, count // 2, count - 1}:
        adaptor = da.adapt(network, "domainadaptor-t", adapt_from=at / count)
        assert [report.why for report in adaptor.layers()].count("statistics") == at


@pytest.mark.parametrize("method", ["adamixbn", "domainadaptor-t", "tent", "slr"])
@pytest.mark.parametrize("adapt_from", [-0.1, 1.5, float("nan"), None, True, "bn2", "0.5"])
def test_mistakes_are_answered(net, method, adapt_from):
    options = {"loss": "gem-t"} if method == "adamixbn" else {"skip": ""} if method == "slr" else {}
    with pytest.raises(BadOption, match="from 0 to 1|the number 0.5"):
        da.adapt(net, method, adapt_from=adapt_from, **options)


def test_it_makes_no_sense_without_a_step(net):
    with pytest.raises(BadOption, match="no step without a loss"):
        da.adapt(net, "adamixbn", adapt_from=0.5)


def test_something_must_be_left_to_learn(net):
    with pytest.raises(UnsupportedNetwork, match="adapt_from=0.9 leave out every norm layer"):
        da.adapt(net, "slr", skip="bn3", adapt_from=0.9)
    with pytest.raises(UnsupportedNetwork, match="adapt_from=1.0 leave out every norm layer"):
        da.adapt(net, "tent", adapt_from=1.0)


def test_earlier_layers_still_mix_statistics(net, images):
    adaptor = da.adapt(net, "domainadaptor-t", adapt_from=0.5, lr=0.5)
    assert [report.why for report in adaptor.layers()] == ["statistics", *["statistics, scale and shift"] * 2]
    result, mixed = adaptor.adapt(images), da.adapt(net, "adamixbn").adapt(images)
    torch.testing.assert_close(result.before, mixed.logits)
    assert result.alpha["bn1"] == pytest.approx(mixed.alpha["bn1"])
    changed = adaptor.adapted_network(images).state_dict()
    plain = da.adapt(net, "adamixbn").adapted_network(images).state_dict()
    torch.testing.assert_close(changed["bn1.weight"], plain["bn1.weight"])
    assert not torch.allclose(changed["bn2.weight"], plain["bn2.weight"])


@pytest.mark.parametrize("options", [{"predict": "after"}, {"predict": "after", "m": 0.3}, {"steps": 2}])
@pytest.mark.parametrize("method", ["tent", "slr"])
def test_methods_that_remember_learn_later_layers_only(net, method, options):
    options |= {"skip": ""} if method == "slr" else {}
    adaptor = da.adapt(net, method, lr=0.05, adapt_from=0.5, **options)
    slow = da.adapt(net, method, lr=0.05, adapt_from=0.5, **options)
    slow._main._prefix = None  # every pass computes everything
    for seed in range(4):
        x = batch(8, 3, 12, 12, seed=seed)
        torch.testing.assert_close(adaptor(x), slow(x))
    state = adaptor.state_dict()
    assert torch.equal(state["bn1.weight"], net.bn1.weight)
    assert not torch.equal(state["bn2.weight"], net.bn2.weight)
    torch.testing.assert_close(dict(state), dict(slow.state_dict()))
    if "m" in options:
        assert not torch.equal(state["bn1.running_mean"], net.bn1.running_mean)


def test_nothing_before_the_point_takes_part_in_the_backward():
    resnet18 = pytest.importorskip("torchvision.models").resnet18
    network = stir(resnet18(num_classes=5))
    adaptor = da.adapt(network, "domainadaptor-t", adapt_from=0.5)
    seen: dict[str, bool] = {}

    def look(name, y):
        seen.setdefault(name, y.requires_grad)  # of the first pass

    for name, module in adaptor._main.network.named_children():
        module.register_forward_hook(lambda _, __, y, name=name: look(name, y))
    adaptor(batch(2, 3, 64, 64))
    assert [name for name, learns in seen.items() if not learns] == [
        "conv1", "bn1", "relu", "maxpool", "layer1", "layer2"
    ]  # fmt: skip
