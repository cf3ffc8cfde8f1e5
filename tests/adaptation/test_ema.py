"""A teacher follows a student, also where layers are used more than once, and not by every batch."""

import pytest
import torch

import domainadaptor as da
from domainadaptor.adaptation.adaptive_network import AdaptiveNetwork, NetworkSettings
from domainadaptor.adaptation.ema import EmaPrediction, update_ema
from domainadaptor.norms.mixed import batch_only
from tests.adaptation.test_step import Sometimes, Twice
from tests.conftest import GoldenNet, batch, make, stir


def test_every_weight_moves_by_its_share():
    source = stir(GoldenNet())

    def built():
        network = AdaptiveNetwork(source, lambda output, count: output, NetworkSettings(batch_only, learns="all"))
        network(batch(4, 3, 12, 12))
        return network

    teacher, student = built(), built()
    assert len(teacher.learnable()) == len(list(source.parameters()))
    with torch.no_grad():
        for p in student.learnable().values():
            p += 1
    update_ema(teacher, student, 0.25)
    for name, p in teacher.learnable().items():
        torch.testing.assert_close(p, student.learnable()[name] - 0.75)


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


FIRST = torch.tensor([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]], dtype=torch.float64)
SECOND = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("uniform", "after_first"),
    [(False, [0.375, 0.375, 0.25]), (True, [0.75 / 3 + 0.25 * 0.375, 0.75 / 3 + 0.25 * 0.375, 0.75 / 3 + 0.25 * 0.25])],
)
def test_it_begins_with_the_first_batch_or_uniform(uniform, after_first):
    average = EmaPrediction(0.75, uniform=uniform)
    assert average.empty
    assert average.before(FIRST).tolist() == pytest.approx([1 / 3] * 3)
    average.add(FIRST)
    assert not average.empty
    assert average.before(SECOND).tolist() == pytest.approx(after_first)
    average.add(SECOND)
    expected = [0.75 * old + 0.25 * new for old, new in zip(after_first, (1, 0, 0), strict=True)]
    assert average.before(FIRST).tolist() == pytest.approx(expected)


def test_it_goes_back():
    average = EmaPrediction(0.5, uniform=False)
    average.add(FIRST)
    held = average.state_dict()
    for _ in range(2):
        average.add(SECOND)
        assert average.before(FIRST).tolist() == [0.6875, 0.1875, 0.125]
        average.load_state_dict(held)
        assert average.before(FIRST).tolist() == [0.375, 0.375, 0.25]
    average.reset()
    assert average.empty


def test_it_follows_the_precision_of_the_batch():
    average = EmaPrediction(0.5, uniform=False)
    average.add(FIRST)
    assert average.before(SECOND.float()).dtype == torch.float32
