import pytest
import torch
from torch import nn

from domainadaptor.lab.networks import neutrality
from domainadaptor.lab.networks.neutrality import check_neutrality, randomize_norms, relative_change
from domainadaptor.norms.instance_aware import make_instance_aware
from tests.conftest import GoldenNet, batch


def network() -> nn.Module:
    net = GoldenNet().eval()
    randomize_norms(net, seed=0)
    return net


def with_layer_norm() -> nn.Module:
    net = network()
    for name, channels in (("bn1", 8), ("bn2", 16), ("bn3", 16)):
        setattr(net, name, nn.GroupNorm(1, channels))
    return net


def with_instance_aware_norms() -> nn.Module:
    net = network()
    make_instance_aware(net)
    return net


def test_a_network_with_batch_norms_is_neutral():
    net = network()
    found = check_neutrality(net, batch(4, 3, 12, 12))
    assert found.neutral
    assert found.same_bits
    assert found.folded_error < 1e-6
    assert not torch.equal(net.bn1.running_mean, torch.zeros(8))


@pytest.mark.parametrize("build", [with_layer_norm, with_instance_aware_norms])
def test_networks_without_batch_norms_are_checked_too(build):
    found = check_neutrality(build(), batch(4, 3, 12, 12))
    assert found == (True, None)
    assert found.neutral


@pytest.mark.parametrize("fold", [True, False])
def test_a_wrapper_that_changes_logits_is_caught(monkeypatch, fold):
    """A normalization that is off by one percent fails the check."""
    real = neutrality.adapt

    def off(network, method, **options):
        adaptor = real(network, method, **options)
        if options.get("alpha") == 1.0 and options.get("fold", True) == fold:
            return lambda images: adaptor(images) * 1.01
        return adaptor

    monkeypatch.setattr(neutrality, "adapt", off)
    assert not check_neutrality(network(), batch(4, 3, 12, 12)).neutral


def test_a_step_not_taken_that_changes_logits_is_caught(monkeypatch):
    real = neutrality._without_step
    monkeypatch.setattr(neutrality, "_without_step", lambda *given: real(*given) * 1.01)
    assert not check_neutrality(with_layer_norm(), batch(4, 3, 12, 12)).neutral


def test_relative_change():
    assert relative_change(torch.tensor([[1.0, -4.0]]), torch.tensor([[2.0, -5.0]])) == pytest.approx(0.2)
