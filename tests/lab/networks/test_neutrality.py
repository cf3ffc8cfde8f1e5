import pytest
import torch

from domainadaptor.lab.networks import neutrality as probing
from domainadaptor.lab.networks.neutrality import check_neutrality, randomize_norms
from tests.conftest import GoldenNet, batch


def test_a_good_network_is_neutral():
    net = GoldenNet().eval()
    randomize_norms(net, seed=0)
    found = check_neutrality(net, batch(4, 3, 12, 12))
    assert found.neutral
    assert found.same_bits
    assert found.step_change > 0
    assert not torch.equal(net.bn1.running_mean, torch.zeros(8))


@pytest.mark.parametrize("fold", [True, False])
def test_a_wrapper_that_changes_answers_is_caught(monkeypatch, fold):
    """The probe can fail: a normalization that is off by one percent."""
    net = GoldenNet().eval()
    randomize_norms(net, seed=0)
    real = probing.adapt

    def off(network, method, **options):
        adaptor = real(network, method, **options)
        if options.get("alpha") == 1.0 and options.get("fold", True) == fold:
            return lambda images: adaptor(images) * 1.01
        return adaptor

    monkeypatch.setattr(probing, "adapt", off)
    assert not check_neutrality(net, batch(4, 3, 12, 12)).neutral
