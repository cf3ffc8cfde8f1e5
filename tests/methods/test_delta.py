"""DELTA against its loop written out: renormalized layers with averages by hand, and weights by class."""

import math

import pytest
import torch
from torch import nn

import domainadaptor as da
from domainadaptor.errors import BadOption, UnsupportedNetwork
from tests.conftest import GoldenNet, batch, stir
from tests.methods.literal import probabilities
from tests.methods.sure_network import descend, forward, learned, network, surprise, varied

# Of different sizes and means, so that the averages matter.
BATCHES = [varied(10 - seed, seed) * (1 + 0.2 * seed) + 0.3 * seed for seed in range(5)]


def literal(batches, loss="entropy", keep=0.95, balance=0.95, predict="before", lr=0.05):
    net = network()
    speed = [torch.zeros_like(p) for p in learned(net)]
    averages = {}
    often = [1 / 7] * 7
    answers, used_counts = [], []

    def run(x):
        seen = {}

        def norm(name, h):
            mean = h.mean((0, 2, 3))
            deviation = (((h - mean.view(1, -1, 1, 1)) ** 2).mean((0, 2, 3)) + 1e-5).sqrt()
            seen[name] = mean.detach(), deviation.detach()
            mu, sigma = averages.get(name, seen[name])
            r, d = deviation.detach() / sigma, (mean.detach() - mu) / sigma
            view = (1, -1, 1, 1)
            return (h - mean.view(view)) / deviation.view(view) * r.view(view) + d.view(view)

        return forward(net, x, norm), seen

    for x in batches:
        z, seen = run(x)
        rows = [probabilities(row).detach() for row in z]
        own = [int(p.argmax()) for p in rows]
        weight = [1 / often[c] for c in own]
        weight = [w / sum(weight) * len(weight) for w in weight]
        terms = []
        for at, row in enumerate(z):
            h = surprise(row)
            if loss == "entropy":
                terms.append(weight[at] * h)
            elif loss == "weighted-entropy" and h.item() < 0.5 * math.log(7):
                terms.append(weight[at] * math.exp(0.5 * math.log(7) - h.item()) * h)
            elif loss == "pseudo-label" and rows[at].max().item() > 0.4:
                terms.append(-weight[at] * probabilities(row)[own[at]].log())
        often = [balance * o + (1 - balance) * sum(p[c].item() for p in rows) / len(rows) for c, o in enumerate(often)]
        if terms:
            descend(learned(net), torch.autograd.grad(sum(terms) / len(terms), learned(net)), speed, lr, 0.9)
            if predict == "after":
                z, _ = run(x)
        averages = {
            name: tuple(keep * o + (1 - keep) * n for o, n in zip(averages.get(name, new), new, strict=True))
            for name, new in seen.items()
        }
        answers.append(z.detach())
        used_counts.append(len(terms))
    return answers, used_counts, averages


@pytest.mark.parametrize("predict", ["before", "after"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"loss": "weighted-entropy"},
        {"loss": "pseudo-label"},
        {"keep": 0.5, "balance": 0.5},
        {"keep": 0.0, "balance": 1.0},
    ],
    ids=str,
)
def test_delta_is_its_literal_loop(options, predict):
    adaptor = da.adapt(network(), "delta", lr=0.05, predict=predict, **options)
    expected, used, averages = literal(BATCHES, predict=predict, **options)
    assert 0 < sum(used) <= 40
    assert options.get("loss", "entropy") == "entropy" or sum(used) < 40
    for x, z in zip(BATCHES, expected, strict=True):
        torch.testing.assert_close(adaptor(x), z, atol=1e-9, rtol=1e-9)
    state = adaptor.state_dict()
    for name, (mean, deviation) in averages.items():
        torch.testing.assert_close(state[f"{name}.running_mean"], mean, atol=1e-9, rtol=1e-9)
        torch.testing.assert_close(state[f"{name}.running_var"], deviation**2 - 1e-5, atol=1e-9, rtol=1e-9)


def test_the_averages_are_the_value_and_the_batch_is_the_gradient():
    """With a rate of zero: later batches are normalized as the first, and the plain network can repeat that."""
    adaptor = da.adapt(network(), "delta", lr=0.0, keep=1.0)
    adaptor(BATCHES[0])
    plain = network()
    plain.load_state_dict(adaptor.state_dict())
    for x in BATCHES[1:]:
        torch.testing.assert_close(adaptor(x), plain(x).detach(), atol=1e-9, rtol=1e-9)
    assert not torch.allclose(adaptor(BATCHES[1]), da.adapt(network(), "adabn")(BATCHES[1]), atol=1e-2)


def test_looking_at_the_adapted_network_counts_as_one_batch():
    one, other = (da.adapt(network(), "delta", lr=0.05) for _ in range(2))
    for x in BATCHES[:3]:
        one(x)
        other.adapted_network(x)
    assert torch.equal(one(BATCHES[3]), other(BATCHES[3]))


def test_a_batch_that_fails_is_not_averaged():
    adaptor, expected = (da.adapt(network(), "delta", lr=0.05) for _ in range(2))
    adaptor(BATCHES[0])
    expected(BATCHES[0])
    assert adaptor.adapt(1e200 * BATCHES[1]).fell_back
    assert torch.equal(adaptor(BATCHES[2]), expected(BATCHES[2]))


def test_a_layer_used_twice_takes_its_own_statistics():
    class Twice(GoldenNet):
        def forward(self, x):
            h = torch.relu(self.bn1(self.c1(x)))
            h = torch.relu(self.bn1(nn.functional.avg_pool2d(h, 2) + 1))
            return self.fc(torch.relu(self.bn2(self.c2(h))).mean((2, 3)))

    adaptor = da.adapt(stir(Twice()), "delta", lr=0.05)
    for seed in range(3):
        assert torch.isfinite(adaptor(batch(6, 3, 12, 12, seed=seed))).all()
    assert torch.equal(adaptor.state_dict()["bn1.running_mean"], stir(Twice()).bn1.running_mean)


def test_once_per_batch_it_is_tent():
    delta = da.adapt(network(), "delta", lr=0.05, balance=1.0, reset_every=1, predict="after")
    tent = da.adapt(network(), "tent", lr=0.05, optimizer="sgd", reset_every=1, predict="after")
    for x in BATCHES:
        torch.testing.assert_close(delta(x), tent(x), atol=1e-10, rtol=1e-10)


def test_mistakes_and_networks_without_batch_norm_are_explained():
    timm = pytest.importorskip("timm")
    for options, hint in [
        ({"loss": "weighted"}, "did you mean 'weighted-entropy'"),
        ({"keep": 2}, "from 0 to 1"),
        ({"balance": -1}, "from 0 to 1"),
    ]:
        with pytest.raises(BadOption, match=hint):
            da.adapt(network(), "delta", **options)
    with pytest.raises(UnsupportedNetwork, match="no batch normalization"):
        da.adapt(timm.create_model("vit_tiny_patch16_224", num_classes=5, img_size=32, depth=1), "delta")
