"""TSD against its loop written out: memory by sorting lists, prototypes and cosines by loops, Adam by hand."""

import math

import pytest
import torch
from torch import nn

import domainadaptor as da
from domainadaptor.errors import BadOption, UnsupportedNetwork
from domainadaptor.methods._supports import Supports
from tests.conftest import batch, stir
from tests.methods.literal import Adam, by_batch, features, gradients, leaves, network, probabilities, weights_of

BATCHES = [batch(6, 3, 12, 12, seed=seed, dtype=torch.float64) for seed in range(4)]


def unit(v):
    return v / v.pow(2).sum().sqrt()


def entry(z, scores):
    p = probabilities(scores.unsqueeze(0))[0].detach()
    return {"z": z.detach(), "p": p, "label": int(p.argmax()), "entropy": -float((p * p.log()).sum())}


def surest(memory, keep, classes):
    found = []
    for k in range(classes):
        mine = sorted((item for item in memory if item["label"] == k), key=lambda item: item["entropy"])
        found += mine if keep is None else mine[:keep]
    return found


def literal(batches, *, keep=100, lr=0.01, predict="before"):
    weights = weights_of(network())
    rows = weights["fc.weight"]
    memory = [entry(row, rows @ row + weights["fc.bias"]) for row in rows]
    adam, answers, sizes = Adam(lr), [], []
    for x in batches:
        weights = leaves(weights)
        z = features(weights, x, by_batch)
        scores = z @ weights["fc.weight"].T + weights["fc.bias"]
        memory = surest(memory + [entry(z[i], scores[i]) for i in range(len(x))], keep, 7)
        sizes.append(len(memory))
        prototypes = []
        for k in range(7):
            mine = [unit(item["z"]) for item in memory if item["label"] == k]
            prototypes.append(unit(sum(mine)) if mine else torch.zeros(16).double())
        terms = []
        for i in range(len(x)):
            p = probabilities(scores[i : i + 1])[0]
            cosines = torch.stack([(unit(z[i]) * c).sum() for c in prototypes])
            y = probabilities(cosines.unsqueeze(0))[0]
            own = p.detach()
            terms.append(sum(own[k] * (own[k] / y[k]).log() for k in range(7)))
        weights = adam.step(weights, gradients(sum(terms) / len(terms), weights))
        if predict == "after":
            scores = features(weights, x, by_batch) @ weights["fc.weight"].T + weights["fc.bias"]
        answers.append(scores.detach())
    return answers, sizes


@pytest.mark.parametrize("options", [{}, {"keep": 2}, {"keep": None}, {"predict": "after"}])
def test_tsd_is_its_literal_loop(options):
    options = {"lr": 0.01, **options}
    expected, sizes = literal(BATCHES, **options)
    adaptor = da.adapt(network(), "tsd", **options)
    for x, answer in zip(BATCHES, expected, strict=True):
        torch.testing.assert_close(adaptor(x), answer, atol=1e-9, rtol=1e-9)
    assert len(adaptor._objective.held.features) == sizes[-1]
    if options.get("keep") == 2:
        assert sizes[-1] <= 14


def test_the_most_confident_features_of_each_class_are_kept():
    rows = torch.tensor([[2.0, 0.0], [0.0, 2.0]])
    head = Supports.of(rows, rows @ rows.T)
    assert head.labels.tolist() == [0, 1]
    # Two of class 0: one more confident than the head's row (gap 4), one less; the row stays as the second.
    first = torch.tensor([[9.0, 0.0], [1.0, 0.5]])
    held = head.add(Supports.of(first, first), keep=2)
    assert held.features.tolist() == [[9.0, 0.0], [2.0, 0.0], [0.0, 2.0]]
    second = torch.tensor([[8.0, 0.0], [0.0, 1.0]])
    later = held.add(Supports.of(second, second), keep=2)
    assert later.features.tolist() == [[9.0, 0.0], [8.0, 0.0], [0.0, 2.0], [0.0, 1.0]]
    assert math.isclose(float(later.probabilities[1, 0]), 1 / (1 + math.exp(-8)), rel_tol=1e-6)
    assert held.features.tolist() == [[9.0, 0.0], [2.0, 0.0], [0.0, 2.0]]


def test_all_weights_learn_and_the_network_does_not():
    net = network()
    adaptor = da.adapt(net, "tsd", lr=0.01)
    adaptor(BATCHES[0])
    state = adaptor.state_dict()
    # The head itself is the judge: only what makes features learns from the divergence.
    changed = {name for name, p in net.named_parameters() if not torch.equal(state[name], p)}
    assert changed == {name for name, _ in net.named_parameters()} - {"fc.weight", "fc.bias"}


def test_a_linear_head_is_needed():
    net = stir(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten()))
    with pytest.raises(UnsupportedNetwork, match="has no linear layer"):
        da.adapt(net, "tsd")
    with pytest.raises(UnsupportedNetwork, match="'c1' is not a linear layer"):
        da.adapt(network(), "tsd", head="c1")
    deep = nn.Sequential(network(), nn.Tanh()).double()
    with pytest.raises(UnsupportedNetwork, match="not the output of the linear layer"):
        da.adapt(deep, "tsd")(BATCHES[0])


def test_mistakes_are_explained():
    with pytest.raises(BadOption, match="at least 1"):
        da.adapt(network(), "tsd", keep=0)
