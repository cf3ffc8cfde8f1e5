import pytest
from torch import nn

from domainadaptor.lab.networks import neutrality
from domainadaptor.lab.networks.neutrality import TOLERANCE, neutrality_error
from domainadaptor.norms.instance_aware import make_instance_aware
from tests.conftest import GoldenNet, batch, stir


def network() -> nn.Module:
    return stir(GoldenNet()).eval()


def with_layer_norm() -> nn.Module:
    net = network()
    for name, channels in (("bn1", 8), ("bn2", 16), ("bn3", 16)):
        setattr(net, name, nn.GroupNorm(1, channels))
    return net


def with_instance_aware_norms() -> nn.Module:
    net = network()
    make_instance_aware(net)
    return net


@pytest.mark.parametrize("build", [network, with_layer_norm, with_instance_aware_norms])
def test_networks_with_and_without_batch_norms_are_neutral(build):
    assert neutrality_error(build(), batch(4, 3, 12, 12)) <= TOLERANCE


def test_a_wrapper_that_changes_logits_is_caught(monkeypatch):
    """A normalization that is off by one percent fails the check."""
    real = neutrality.adapt

    def off(network, method, **options):
        adaptor = real(network, method, **options)
        return (lambda images: adaptor(images) * 1.01) if options.get("alpha") == 1.0 else adaptor

    monkeypatch.setattr(neutrality, "adapt", off)
    assert neutrality_error(network(), batch(4, 3, 12, 12)) == pytest.approx(0.01)


def test_a_step_not_taken_that_changes_logits_is_caught(monkeypatch):
    real = neutrality._before_step
    monkeypatch.setattr(neutrality, "_before_step", lambda *given: real(*given) * 1.01)
    assert neutrality_error(with_layer_norm(), batch(4, 3, 12, 12)) == pytest.approx(0.01)
