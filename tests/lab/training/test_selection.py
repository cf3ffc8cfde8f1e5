"""Which weights are kept, against rules written out on lists of numbers."""

import copy
import random

import pytest
import torch
from torch import nn

from domainadaptor.errors import BadOption
from domainadaptor.lab.training.selection import SWAD, BestWeights, LastWeights, ValidationScore, make_selection


class OneNumber(nn.Module):
    """A network with one weight, and a buffer that counts."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        self.register_buffer("running_mean", torch.zeros(1, dtype=torch.float64))

    def set(self, value: float) -> None:
        with torch.no_grad():
            self.weight.fill_(value)
            self.running_mean.fill_(value)


def literal_swad(losses, weights, converge, tolerance, ratio):
    """The weights that are averaged, by the rule: segments, each with the loss at its end; None for the last ones."""
    begin = next(
        (at for at in range(len(losses) - converge + 1) if losses[at] == min(losses[at : at + converge])), None
    )
    if begin is None:
        return None
    threshold = sum(losses[begin : begin + converge]) / converge * (1 + ratio)
    taken = [begin]
    for at in range(begin + 1, len(losses)):
        window = losses[at : at + tolerance]
        if min(window) > threshold:
            break
        taken.append(at)
    return [weight for at in taken for weight in weights[at]]


def feed(selection, losses, weights, module):
    step = 0
    for loss, segment in zip(losses, weights, strict=True):
        for value in segment:
            module.set(value)
            selection.after_step(module)
            step += 1
        selection.after_check(module, ValidationScore(step, 0.0, loss))


@pytest.mark.parametrize("rule", [(3, 6, 0.3), (1, 1, 0.0), (5, 2, 0.1), (3, 1, 0.1)])
@pytest.mark.parametrize("seed", range(80))
def test_swad_is_the_literal_rule(seed, rule):
    rng = random.Random(seed)
    count = rng.randint(1, 25)
    # A valley with noise: falls, then rises, more or less steeply.
    bottom, slope = rng.randint(0, count), rng.choice([0.02, 0.2, 1.0])
    losses = [1 + slope * abs(at - bottom) + 0.3 * rng.random() for at in range(count)]
    weights = [[rng.gauss(0, 1) for _ in range(rng.randint(1, 5))] for _ in losses]
    selection, module = (
        make_selection("swad", dict(zip(("converge", "tolerance", "ratio"), rule, strict=True))),
        OneNumber(),
    )
    feed(selection, losses, weights, module)
    state, _ = selection.chosen()
    expected = literal_swad(losses, weights, *rule)
    last = expected is None
    mean = weights[-1][-1] if last else sum(expected) / len(expected)
    assert float(state["weight"]) == pytest.approx(mean, rel=1e-9)
    if not last:  # buffers are never averaged
        assert float(state["running_mean"]) in [pytest.approx(value) for value in expected]


@pytest.mark.parametrize("name", ["swad", "best", "last"])
@pytest.mark.parametrize("cut", [1, 4, 9])
def test_going_on_ends_with_the_same_weights(name, cut):
    rng = random.Random(5)
    losses = [1 + 0.2 * abs(at - 4) + 0.1 * rng.random() for at in range(12)]
    weights = [[rng.gauss(0, 1) for _ in range(3)] for _ in losses]
    whole, module = make_selection(name), OneNumber()
    feed(whole, losses, weights, module)
    first = make_selection(name)
    feed(first, losses[:cut], weights[:cut], module)
    second = make_selection(name)
    second.resume(copy.deepcopy(first.resume_state()))
    feed(second, losses[cut:], weights[cut:], module)
    one, other = whole.chosen()[0], second.chosen()[0]
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_what_is_kept_is_not_what_is_trained_on():
    module = OneNumber()
    for selection in (BestWeights(), LastWeights(), SWAD()):
        module.set(1.0)
        selection.after_step(module)
        selection.after_check(module, ValidationScore(1, 50.0, 1.0))
        module.set(2.0)
        assert float(selection.chosen()[0]["weight"]) == 1.0


def test_best_is_the_earliest_of_equals():
    selection, module = BestWeights(), OneNumber()
    for value, accuracy in [(1.0, 50.0), (2.0, 70.0), (3.0, 70.0), (4.0, 60.0)]:
        module.set(value)
        selection.after_check(module, ValidationScore(int(value), accuracy, 1.0))
    state, why = selection.chosen()
    assert float(state["weight"]) == 2.0
    assert "70.00 % after step 2" in why


def test_statistics_of_a_mean_are_estimated_anew():
    net = nn.Sequential(nn.Conv2d(3, 4, 1, bias=False), nn.BatchNorm2d(4))
    images = [torch.randn(5, 3, 4, 4) + at for at in range(3)]
    SWAD().finish(net, iter(images), net)
    with torch.no_grad():
        means = [net[0](x).mean((0, 2, 3)) for x in images]
    torch.testing.assert_close(net[1].running_mean, sum(means) / 3)
    assert net[1].momentum == 0.1


def test_an_unknown_way_is_explained():
    with pytest.raises(BadOption, match="did you mean 'swad'"):
        make_selection("swa")
