"""T3A against lists of supports, kept and sorted by hand."""

import math

import pytest
import torch

import domainadaptor as da
from domainadaptor.errors import BadOption
from tests.conftest import batch
from tests.methods.literal import BATCHES, by_batch, by_running, features, network, table

EXACT = {"atol": 1e-9, "rtol": 1e-9}


def literal(batches, keep, batch_only=False):
    """The logits of each batch, and the supports by class after it."""
    p = table(network())
    w, b = p["fc.weight"], p["fc.bias"]
    supports = {label: [] for label in range(7)}

    def add(f):
        z = [float(f @ w[c] + b[c]) for c in range(7)]
        total = sum(math.exp(v) for v in z)
        q = [math.exp(v) / total for v in z]
        supports[z.index(max(z))].append((-sum(v * math.log(v) for v in q), f))

    for row in w:
        add(row)
    answers, sizes = [], []
    for x in batches:
        f = features(p, x, by_batch if batch_only else by_running(p))
        for row in f:
            add(row)
        for label, held in supports.items():
            supports[label] = sorted(held, key=lambda pair: pair[0])[: keep if keep > 0 else None]
        z = torch.zeros(len(x), 7, dtype=torch.float64)
        for label, held in supports.items():
            template = sum((row / row.norm() for _, row in held), torch.zeros(16, dtype=torch.float64))
            if held:
                template = template / template.norm()
            for i, row in enumerate(f):
                z[i, label] = row @ template
        answers.append(z)
        sizes.append(sum(map(len, supports.values())))
    return answers, sizes


@pytest.mark.parametrize("keep", [1, 2, 5, 100, -1])
def test_t3a_is_its_literal_loop(keep):
    adaptor = da.adapt(network(), "t3a", keep=keep)
    for x, expected in zip(BATCHES, literal(BATCHES, keep)[0], strict=True):
        torch.testing.assert_close(adaptor(x), expected, **EXACT)


def test_minus_one_keeps_everything():
    """The authors' program drops the last of each class instead."""
    adaptor = da.adapt(network(), "t3a", keep=-1)
    for x in BATCHES:
        adaptor(x)
    assert len(adaptor._predictor._held.labels) == 7 + 24 == literal(BATCHES, -1)[1][-1]


def test_few_are_kept():
    adaptor = da.adapt(network(), "t3a", keep=2)
    for x, size in zip(BATCHES, literal(BATCHES, 2)[1], strict=True):
        adaptor(x)
        held = adaptor._predictor._held
        assert len(held.labels) == size
        assert held.labels.bincount().max() <= 2


def test_the_bias_takes_part_in_pseudo_labels_only():
    plain, shifted = network(), network()
    with torch.no_grad():
        shifted.fc.bias += 3.0  # of all classes: the same predictions
    torch.testing.assert_close(da.adapt(shifted, "t3a")(BATCHES[0]), da.adapt(plain, "t3a")(BATCHES[0]), **EXACT)
    without = network()
    without.fc.bias = None
    assert torch.isfinite(da.adapt(without, "t3a")(BATCHES[0])).all()


def test_batch_statistics_and_forgetting():
    adaptor = da.adapt(network(), "t3a", statistics="batch", reset_every=2)
    expected = literal(BATCHES[:2], 100, batch_only=True)[0] + literal(BATCHES[2:], 100, batch_only=True)[0]
    for x, z in zip(BATCHES, expected, strict=True):
        torch.testing.assert_close(adaptor(x), z, **EXACT)


def test_a_batch_that_fails_leaves_no_supports():
    adaptor, other = da.adapt(network(), "t3a"), da.adapt(network(), "t3a")
    adaptor(BATCHES[0])
    other(BATCHES[0])
    with pytest.raises(da.UnsupportedNetwork):
        adaptor.adapted_network(BATCHES[1])
    assert torch.equal(adaptor(BATCHES[2]), other(BATCHES[2]))


def test_hostile_batches():
    one = batch(1, 3, 12, 12, dtype=torch.float64)
    adaptor = da.adapt(network(), "t3a", keep=1)
    for x in (one, one.expand(9, -1, -1, -1), torch.zeros(3, 3, 12, 12).double(), one[..., :1, :1]):
        assert torch.isfinite(adaptor(x)).all()


def test_mistakes_are_explained():
    for options, hint in [
        ({"keep": 0}, "at least 1"),
        ({"keep": True}, "whole number"),
        ({"statistics": "both"}, "available: source, batch"),
        ({"reset_every": 0}, "at least 1"),
    ]:
        with pytest.raises(BadOption, match=hint):
            da.adapt(network(), "t3a", **options)
