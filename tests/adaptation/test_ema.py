"""A teacher follows a student, also where layers are used more than once, and not by every batch."""

import pytest
import torch

import domainadaptor as da
from domainadaptor.adaptation.adaptive_network import AdaptiveNetwork
from domainadaptor.adaptation.ema import everything, follow
from domainadaptor.norms.mixed import MixedNorm
from tests.adaptation.test_step import Sometimes, Twice
from tests.conftest import GoldenNet, batch, make, stir


def test_every_weight_moves_by_its_share():
    source = stir(GoldenNet())

    def built():
        return AdaptiveNetwork(
            source, norm=lambda layer: MixedNorm(layer, alpha=0.0, fold=False, variance="biased"), learns="all"
        )

    teacher, student = built(), built()
    assert len(everything(teacher)) == len(list(source.parameters()))
    with torch.no_grad():
        for p in everything(student).values():
            p += 1
    follow(teacher, student, 0.25)
    for name, p in everything(teacher).items():
        torch.testing.assert_close(p, everything(student)[name] - 0.75)


@pytest.mark.parametrize("kind", [Twice, Sometimes])
@pytest.mark.parametrize("method", ["cotta", "tsd", "memo", "rotta"])
def test_layers_that_are_used_twice(method, kind):
    net = stir(kind())
    adaptor = make(net, method)
    for x in (batch(3, 3, 12, 12), batch(6, 3, 12, 12), batch(3, 3, 12, 12, seed=1)):
        result = adaptor.adapt(x)
        assert torch.isfinite(result.logits).all()
        assert not result.fell_back
    adaptor.reset()
    assert all(torch.equal(value, net.state_dict()[name]) for name, value in adaptor.state_dict().items())
    assert isinstance(adaptor, da.Adaptor)
