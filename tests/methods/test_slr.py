"""SLR against its formulas: the ratio class by class, the running mean, and descent by hand."""

import math

import pytest
import torch

import domainadaptor as da
from domainadaptor.adaptation import losses
from domainadaptor.errors import BadOption, UnsupportedNetwork
from tests.conftest import batch
from tests.methods.literal import BATCHES, NORMS, descend, logits, network, probabilities, table

EXACT = {"atol": 1e-9, "rtol": 1e-9}


def ratio(z):
    """Of each image: minus sum p log(p / the others)."""
    p = probabilities(z)
    total = 0
    for c in range(z.shape[1]):
        others = sum(p[:, i] for i in range(z.shape[1]) if i != c)
        total = total - p[:, c] * (p[:, c] / others).log()
    return total


def literal(batches, form, confidence, diversity, kappa, lr, momentum, predict, once, steps=1, names=NORMS):
    source = table(network())
    p, speed, mean = dict(source), {}, torch.full((7,), 1 / 7, dtype=torch.float64)
    answers = []
    for x in batches:
        if once:
            p, speed, mean = dict(source), {}, torch.full((7,), 1 / 7, dtype=torch.float64)
        before = logits(p, x)
        for _ in range(steps):
            new = []

            def loss(t, x=x, mean=mean, new=new):
                z = logits(t, x)
                q = probabilities(z)
                first = ratio(z) if form == "authors" else (-q * (1 / (1 - q + 1e-8)).log()).sum(1)
                now = kappa * mean + (1 - kappa) * sum(q) / len(q)
                new.append(now.detach())
                return confidence * first.mean() + diversity * sum(v * (v / (1 / 7)).log() for v in now)

            descend(p, names, loss, lr, momentum, speed)
        mean = new[-1]
        answers.append(before if predict == "before" else logits(p, x))
    return answers


CASES = [
    {"form": "authors", "confidence": 0.025, "diversity": 1.0, "kappa": 0.9},
    {"form": "authors", "confidence": 1.0, "diversity": 2.0, "kappa": 0.5},
    {"form": "domainadaptor", "confidence": 1.0, "diversity": 0.0, "kappa": 0.9},
    {"form": "domainadaptor", "confidence": 0.5, "diversity": 1.0, "kappa": 0.0},
]


@pytest.mark.parametrize("options", CASES)
@pytest.mark.parametrize(
    ("momentum", "predict", "once"), [(0.9, "before", False), (0.0, "after", False), (0.0, "after", True)]
)
def test_slr_is_its_literal_loop(options, momentum, predict, once):
    expected = literal(BATCHES, **options, lr=0.05, momentum=momentum, predict=predict, once=once)
    shared = {"optimizer": "sgd", "lr": 0.05, "momentum": momentum, "predict": predict}
    adaptor = da.adapt(network(), "slr", **options, **shared, reset_every=1 if once else None)
    for x, z in zip(BATCHES, expected, strict=True):
        torch.testing.assert_close(adaptor(x), z, **EXACT)


@pytest.mark.parametrize(("form", "at"), [("authors", 0), ("domainadaptor", 2)])
def test_the_constants_follow_the_form(form, at):
    shared = {"optimizer": "sgd", "lr": 0.05}
    one, other = da.adapt(network(), "slr", form=form, **shared), da.adapt(network(), "slr", **CASES[at], **shared)
    assert all(torch.equal(one(x), other(x)) for x in BATCHES)


def test_a_batch_counts_once_in_the_running_mean_however_many_steps_it_gets():
    options = CASES[1]
    expected = literal(BATCHES, **options, lr=0.05, momentum=0.9, predict="after", once=False, steps=3)
    adaptor = da.adapt(network(), "slr", **options, optimizer="sgd", lr=0.05, predict="after", steps=3)
    for x, z in zip(BATCHES, expected, strict=True):
        torch.testing.assert_close(adaptor(x), z, **EXACT)


def test_layers_to_skip_keep_their_scale_and_shift():
    names = [name for name in NORMS if not name.startswith("bn3")]
    expected = literal(BATCHES, **CASES[1], lr=0.05, momentum=0.9, predict="before", once=False, names=names)
    for skip in ("bn3", ["bn3"]):
        adaptor = da.adapt(network(), "slr", **CASES[1], optimizer="sgd", lr=0.05, skip=skip)
        for x, z in zip(BATCHES, expected, strict=True):
            torch.testing.assert_close(adaptor(x), z, **EXACT)
    with pytest.raises(UnsupportedNetwork, match="Nothing is left to learn"):
        da.adapt(network(), "slr", skip="bn1,bn2,bn3")
    torchvision = pytest.importorskip("torchvision")

    for skip, still in [(None, "layer4"), ("layer4, layer3", ("layer3", "layer4")), ("", ()), ((), ())]:
        for layer in da.adapt(torchvision.models.resnet18().eval(), "slr", skip=skip).layers():
            stays = layer.name.startswith(still)
            assert layer.why == ("statistics" if stays else "statistics, scale and shift"), (skip, layer)


def test_the_ratio_and_its_gradient():
    z = (3 * batch(5, 7, dtype=torch.float64)).requires_grad_()
    torch.testing.assert_close(losses.likelihood_ratio(z), ratio(z), **EXACT)
    got, expected = (torch.autograd.grad(f(z).sum(), z)[0] for f in (losses.likelihood_ratio, ratio))
    torch.testing.assert_close(got, expected, **EXACT)
    # The two forms differ by the entropy.
    torch.testing.assert_close(losses.likelihood_ratio(z), losses.slr(z) + losses.entropy(z), atol=1e-6, rtol=1e-6)


def test_the_ratio_stays_finite_and_keeps_its_gradient_where_the_entropy_has_none():
    for z in ([[200.0, 0.0, -5.0]], [[1e4, 0.0, 0.0]], [[0.0, 0.0, 0.0]], [[7.0, 7.0, -7.0]]):
        z = torch.tensor(z, requires_grad=True)
        value = losses.likelihood_ratio(z).sum()
        (gradient,) = torch.autograd.grad(value, z)
        assert torch.isfinite(value)
        assert torch.isfinite(gradient).all()
    confident = torch.tensor([[50.0, 0.0]], requires_grad=True)
    (gradient,) = torch.autograd.grad(losses.likelihood_ratio(confident).sum(), confident)
    torch.testing.assert_close(gradient, torch.tensor([[-1.0, 1.0]]))
    assert losses.likelihood_ratio(torch.zeros(1, 4)) == pytest.approx(math.log(3))


def test_a_batch_that_fails_does_not_count(monkeypatch):
    from domainadaptor.adaptation import step

    adaptor, other = (da.adapt(network(), "slr", lr=0.05, diversity=5.0) for _ in range(2))
    adaptor(BATCHES[0])
    other(BATCHES[0])
    with monkeypatch.context() as patched:
        patched.setattr(step, "compute_gradients", lambda *_: [torch.tensor(float("inf"))])
        assert adaptor.adapt(BATCHES[1]).fell_back
    assert all(torch.equal(adaptor(x), other(x)) for x in BATCHES[2:])  # the second shows what the first step did


def test_mistakes_are_explained():
    for options, hint in [
        ({"form": "author"}, "did you mean 'authors'"),
        ({"kappa": 2}, "from 0 to 1"),
        ({"diversity": -1}, "at least 0"),
        ({"skip": [3]}, "expected names of layers"),
        ({"skip": "bn"}, "not a layer of the network"),  # the beginning of a name is none
        ({"optimizer": "adamw"}, "did you mean 'adam'"),
        ({"threshold": 2}, "from 0 to 1"),
    ]:
        with pytest.raises(BadOption, match=hint):
            da.adapt(network(), "slr", **options)
