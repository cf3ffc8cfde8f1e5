"""LAME against its loop written out: one image, one class, one pair at a time."""

import math

import pytest
import torch

import domainadaptor as da
from domainadaptor.errors import BadOption, UnsupportedNetwork
from tests.conftest import batch
from tests.methods.literal import BATCHES, by_batch, by_running, features, logits, network, table

EXACT = {"atol": 1e-9, "rtol": 1e-9}


def kernel(f, affinity, k, symmetric):
    n = len(f)
    unit = [row / row.norm() for row in f]
    distance = [[float(((a - b) ** 2).sum()) ** 0.5 for b in unit] for a in unit]
    w = [[0.0] * n for _ in range(n)]
    width = sum(sorted(row)[min(k, n) - 1] for row in distance) / n
    for i in range(n):
        nearest = sorted((j for j in range(n) if j != i), key=lambda j: distance[i][j])[:k]
        for j in range(n):
            w[i][j] = {
                "knn": 1.0 if j in nearest else 0.0,
                "rbf": math.exp(-(distance[i][j] ** 2) / (2 * width**2)),
                "linear": float(unit[i] @ unit[j]),
            }[affinity]
    return [[(w[i][j] + w[j][i]) / 2 if symmetric else w[i][j] for j in range(n)] for i in range(n)]


def literal(x, affinity, k=5, symmetric=False, weight=1.0, steps=100, batch_only=False):
    """The probabilities after each iteration, and how many were made."""
    p = table(network())
    norm = by_batch if batch_only else by_running(p)
    z, f = logits(p, x, norm), features(p, x, norm)
    w = kernel(f, affinity, k, symmetric)
    n, classes = z.shape
    unary = [[-math.log(float(z[i].softmax(0)[c]) + 1e-10) for c in range(classes)] for i in range(n)]

    def normalized(rows):
        return [[math.exp(v) / sum(math.exp(u) for u in row) for v in row] for row in rows]

    y = normalized([[-u for u in row] for row in unary])
    held = math.inf
    for step in range(steps):
        pull = [[weight * sum(w[i][j] * y[j][c] for j in range(n)) for c in range(classes)] for i in range(n)]
        y = normalized([[pull[i][c] - unary[i][c] for c in range(classes)] for i in range(n)])
        energy = 0.0
        for i in range(n):
            for c in range(classes):
                near = weight * sum(w[i][j] * y[j][c] for j in range(n))
                energy += unary[i][c] * y[i][c] - near * y[i][c] + y[i][c] * math.log(y[i][c])
        if step > 1 and abs(energy - held) <= 1e-8 * abs(held):
            break
        held = energy
    return torch.tensor(y, dtype=torch.float64).log(), step + 1


@pytest.mark.parametrize("affinity", ["knn", "rbf", "linear"])
@pytest.mark.parametrize("symmetric", [False, True])
def test_lame_is_its_literal_loop(affinity, symmetric):
    adaptor = da.adapt(network(), "lame", affinity=affinity, symmetric=symmetric, neighbors=3)
    for x in BATCHES[:2]:
        expected, iterations = literal(x, affinity, 3, symmetric)
        assert 2 < iterations < 100
        torch.testing.assert_close(adaptor(x), expected, **EXACT)


@pytest.mark.parametrize("options", [{"weight": 0.3}, {"steps": 1}, {"steps": 2}, {}])
def test_weight_and_number_of_steps(options):
    adaptor = da.adapt(network(), "lame", affinity="knn", neighbors=2, **options)
    torch.testing.assert_close(adaptor(BATCHES[0]), literal(BATCHES[0], "knn", 2, **options)[0], **EXACT)


def test_it_stops_at_a_fixed_point():
    """One more iteration by hand leaves it where it is."""
    x = BATCHES[0]
    z = da.adapt(network(), "lame", tolerance=0, steps=1000)(x)
    p = table(network())
    w = torch.tensor(kernel(features(p, x, by_running(p)), "rbf", 5, False), dtype=torch.float64)
    again = ((logits(p, x, by_running(p)).softmax(1) + 1e-10).log() + w @ z.exp()).log_softmax(1)
    torch.testing.assert_close(again, z, **EXACT)


def test_batch_statistics():
    got = da.adapt(network(), "lame", statistics="batch", neighbors=3)(BATCHES[0])
    torch.testing.assert_close(got, literal(BATCHES[0], "rbf", 3, batch_only=True)[0], **EXACT)


def test_logits_are_logarithms_of_probabilities_and_no_weight_changes_nothing():
    net = network()
    z = da.adapt(net, "lame")(BATCHES[0])
    torch.testing.assert_close(z.exp().sum(1), torch.ones(6, dtype=torch.float64))
    alone = da.adapt(net, "lame", weight=0.0)(BATCHES[0])
    torch.testing.assert_close(alone, net(BATCHES[0]).detach().log_softmax(1), atol=1e-8, rtol=1e-8)
    assert da.adapt(net, "lame").adapt(BATCHES[0]).before.equal(net(BATCHES[0]))


@pytest.mark.parametrize("affinity", ["knn", "rbf", "linear"])
def test_hostile_batches(affinity):
    adaptor = da.adapt(network(), "lame", affinity=affinity)
    one = batch(1, 3, 12, 12, dtype=torch.float64)
    alone = adaptor(one)
    assert torch.equal(alone.argmax(1), network()(one).argmax(1))
    if affinity == "knn":  # it has no neighbour
        torch.testing.assert_close(alone, network()(one).detach().log_softmax(1), atol=1e-8, rtol=1e-8)
    for x in (one.expand(9, -1, -1, -1), torch.zeros(3, 3, 12, 12).double(), batch(2, 3, 1, 1, dtype=torch.float64)):
        result = adaptor.adapt(x)
        assert torch.isfinite(result.logits).all()
        assert not result.fell_back


def test_it_works_without_batch_norm_and_needs_a_linear_head():
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
    assert da.adapt(net, "lame")(torch.randn(4, 3, 2, 2)).shape == (4, 3)
    with pytest.raises(UnsupportedNetwork, match="no linear layer"):
        da.adapt(torch.nn.Conv2d(3, 2, 1), "lame")
    with pytest.raises(UnsupportedNetwork, match="is not|are not"):
        da.adapt(net, "lame", head="1")(torch.randn(4, 3, 2, 2))


def test_mistakes_are_explained():
    for options, hint in [
        ({"affinity": "knnn"}, "did you mean 'knn'"),
        ({"neighbors": 0}, "at least 1"),
        ({"statistics": "mixed"}, "available: source, batch"),
        ({"tolerance": -1}, "at least 0"),
        ({"symmetric": 1}, "True or False"),
    ]:
        with pytest.raises(BadOption, match=hint):
            da.adapt(network(), "lame", **options)
