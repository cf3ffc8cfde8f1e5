"""ROID against its loop written out: weights, ratio, views, the way back to the source, and the prior."""

import math

import pytest
import torch

import domainadaptor as da
from domainadaptor.augmentation.crops import random_views
from domainadaptor.errors import BadOption, UnsupportedNetwork
from domainadaptor.methods.roid import corrected
from tests.conftest import batch
from tests.methods.literal import probabilities
from tests.methods.sure_network import descend, forward, learned, network, surprise, varied

BATCHES = [varied(10, seed) for seed in range(5)]


def scaled(values):
    low, high = min(values), max(values)
    return [(v - low) / (high - low) if high > low else 0.0 for v in values]


def ratio(row, clip):
    total = 0
    for value in probabilities(row):
        p = value if value.item() <= clip else clip + 0 * value
        total = total - p * (p / (1 - p) + 1e-5).log()
    return total


def with_prior(z):
    rows = [probabilities(row) for row in z]
    prior = [sum(p[c].item() for p in rows) / len(rows) for c in range(7)]
    smooth = max(1 / len(rows), 1 / 7) / max(prior)
    smoothed = torch.tensor([(p + smooth) / (1 + 7 * smooth) for p in prior], dtype=z.dtype)
    return torch.stack([p * smoothed / (p * smoothed).sum() for p in rows])


def literal(batches, lr=0.05, temperature=1 / 3, clip=0.99, consistency=True, keep=0.99, predict="before"):
    net = network()
    start = [p.detach().clone() for p in learned(net)]
    speed = [torch.zeros_like(p) for p in learned(net)]
    average = torch.full((7,), 1 / 7, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    answers, kept_counts = [], []
    for x in batches:
        z = forward(net, x)
        rows = [probabilities(row).detach() for row in z]
        diversity = scaled([1 - (p @ average / p.norm() / average.norm()).item() for p in rows])
        certainty = scaled([-surprise(row).item() for row in z])
        weight = [math.exp(d * c / temperature) for d, c in zip(diversity, certainty, strict=True)]
        kept = [at for at in range(len(z)) if diversity[at] >= sum(diversity) / len(z)]
        average = 0.9 * average + 0.1 * sum(rows) / len(rows)
        loss = sum(weight[at] * ratio(z[at], clip) for at in kept) / len(z)
        if consistency:
            other = forward(net, random_views(x[kept], 1, generator))
            for at, row in zip(kept, other, strict=True):
                p, q = probabilities(z[at]), probabilities(row)
                loss = loss - weight[at] * (0.5 * (p * q.log()).sum() + 0.5 * (q * p.log()).sum()) / len(z)
        descend(learned(net), torch.autograd.grad(loss, learned(net)), speed, lr, 0.9)
        with torch.no_grad():
            for p, s in zip(learned(net), start, strict=True):
                p.copy_(keep * p + (1 - keep) * s)
        if predict == "after":
            z = forward(net, x)
        answers.append(z.detach())
        kept_counts.append(len(kept))
    return answers, kept_counts


@pytest.mark.parametrize("predict", ["before", "after"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"consistency": False},
        {"keep": 0.5, "temperature": 1.0},
        {"clip": 0.6},
        {"keep": 1.0, "clip": 1.0, "lr": 1e-3},
    ],
    ids=str,
)
def test_roid_is_its_literal_loop(options, predict):
    options = {"lr": 0.05, "predict": predict, **options}
    adaptor, answering = (da.adapt(network(), "roid", prior=prior, **options) for prior in (False, True))
    expected, kept = literal(BATCHES, **options)
    assert 0 < sum(kept) < 50
    for x, z in zip(BATCHES, expected, strict=True):
        torch.testing.assert_close(adaptor(x), z, atol=1e-9, rtol=1e-9)
        torch.testing.assert_close(answering(x).softmax(1), with_prior(z), atol=1e-9, rtol=1e-9)


def test_the_prior_helps_frequent_classes_whatever_the_sign_of_their_logits():
    z = torch.tensor([[3.0, 0.0, 0.0], [3.0, 0.0, 0.0], [0.1, 0.0, 0.2]], dtype=torch.float64)
    for shift in (0.0, -10.0, 10.0):
        answer = corrected(z + shift)
        torch.testing.assert_close(answer.softmax(1), corrected(z).softmax(1))
        assert answer[2].argmax() == 0  # was class 2 by a little
    equal = torch.zeros(4, 5)
    assert torch.equal(corrected(equal), equal)


def test_without_anything_kept_it_stays_at_the_source():
    net = network()
    adaptor = da.adapt(net, "roid", lr=0.5, keep=0.0)
    for x in BATCHES:
        adaptor(x)
    for name, value in adaptor.state_dict().items():
        torch.testing.assert_close(value, net.state_dict()[name], atol=1e-12, rtol=0)


@pytest.mark.parametrize("x", [BATCHES[0][:1], BATCHES[0][:1].expand(6, -1, -1, -1)], ids=["one", "identical"])
def test_one_image_and_identical_images_weigh_alike(x):
    adaptor = da.adapt(network(), "roid", lr=0.01, consistency=False, prior=False)
    result = adaptor.adapt(x)
    assert result.loss == pytest.approx(ratio(forward(network(), x)[0], 0.99).item())
    assert torch.isfinite(adaptor(x)).all()


def test_layer_norms_learn_too():
    timm = pytest.importorskip("timm")

    torch.manual_seed(0)
    net = timm.create_model("vit_tiny_patch16_224", num_classes=5, img_size=32, depth=1).eval()
    with torch.no_grad():
        net.head.weight.normal_(0, 0.3)
    adaptor = da.adapt(net, "roid", lr=0.05)
    x = batch(3, 3, 32, 32)
    assert not torch.equal(adaptor(x), adaptor(x))


def test_a_plain_network_can_hold_it_without_the_prior():
    x = BATCHES[0]
    with pytest.raises(UnsupportedNetwork, match="PriorCorrection answers instead"):
        da.adapt(network(), "roid").adapted_network(x)
    options = {"lr": 0.05, "prior": False}
    plain = da.adapt(network(), "roid", **options).adapted_network(x)
    torch.testing.assert_close(plain(x).detach(), da.adapt(network(), "roid", predict="after", **options)(x))


def test_mistakes_are_explained():
    for options, hint in [
        ({"temperature": 0}, "above 0"),
        ({"clip": 2}, "finite number"),
        ({"keep": 2}, "from 0 to 1"),
        ({"prior": "yes"}, "True or False"),
    ]:
        with pytest.raises(BadOption, match=hint):
            da.adapt(network(), "roid", **options)
