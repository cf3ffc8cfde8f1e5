"""Only confident images are learned from, all are predicted: against losses of chosen rows written out."""

import pytest
import torch

import domainadaptor as da
from domainadaptor.adaptation import losses
from domainadaptor.adaptation.objective import Confident, LogitLoss, ViewsLoss
from domainadaptor.errors import BadOption
from tests.methods.literal import BATCHES, NORMS, descend, logits, network, probabilities, table

EXACT = {"atol": 1e-9, "rtol": 1e-9}
METHODS = ["tent", "slr", "domainadaptor-t", "domainadaptor-skd", "domainadaptor-aug"]


def confidences(x):
    return probabilities(logits(table(network()), x)).max(1).values


def between(x, count):
    """A threshold that leaves so many images."""
    ordered = confidences(x).sort(descending=True).values
    return float((ordered[count - 1] + ordered[count]) / 2)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("steps", [1, 3])
def test_tent_with_a_threshold_is_its_literal_loop(count, steps):
    """Later steps go on with the images of the first pass, whatever became of their confidence."""
    threshold = between(BATCHES[0], count)
    adaptor = da.adapt(network(), "tent", optimizer="sgd", lr=0.3, threshold=threshold, steps=steps, predict="after")
    p, speed = table(network()), {}
    for at, x in enumerate(BATCHES):
        chosen = [i for i, c in enumerate(probabilities(logits(p, x)).max(1).values) if c > threshold]
        assert at > 0 or len(chosen) == count

        def loss(t, x=x, chosen=chosen):
            q = probabilities(logits(t, x))
            return sum(-(q[i] * q[i].log()).sum() for i in chosen) / len(chosen)

        for _ in range(steps if chosen else 0):
            descend(p, NORMS, loss, 0.3, 0.9, speed)
        torch.testing.assert_close(adaptor(x), logits(p, x), **EXACT)


@pytest.mark.parametrize("method", METHODS)
def test_nobody_above_means_no_step_and_a_note(method):
    result = da.adapt(network(), method, threshold=1.0, lr=0.1).adapt(BATCHES[0])
    assert result.loss is None
    assert result.note == "no step: no image is predicted with a confidence above 1"
    assert torch.equal(result.logits, result.before)
    assert not result.fell_back


@pytest.mark.parametrize("method", METHODS)
def test_everybody_above_is_the_method_without_threshold(method):
    plain, low = da.adapt(network(), method, lr=0.1), da.adapt(network(), method, lr=0.1, threshold=0.0)
    for x in BATCHES:
        one, other = plain.adapt(x), low.adapt(x)
        torch.testing.assert_close(one.logits, other.logits, **EXACT)
        assert one.loss == pytest.approx(other.loss, rel=1e-9)


@pytest.mark.parametrize("rule", ["code", "per_image", "batch_mean"])
def test_the_temperature_is_that_of_the_chosen_images(rule):
    z = logits(table(network()), BATCHES[0])
    heated = LogitLoss(lambda rows: losses.with_temperature(losses.gem_t, rule, 2.0, rows))
    threshold = between(BATCHES[0], 2)
    chosen = (confidences(BATCHES[0]) > threshold).nonzero().flatten()
    got = Confident(heated, threshold)(None, BATCHES[0], z)
    torch.testing.assert_close(got, heated(None, BATCHES[0], z[chosen]), **EXACT)


def test_only_chosen_images_get_views():
    shapes = []

    def forward(views):
        shapes.append(tuple(views.shape))
        return logits(table(network()), views)

    z = logits(table(network()), BATCHES[0])
    views = ViewsLoss(temperature="code", scale=2.0, views=3, seed=0)
    threshold = between(BATCHES[0], 2)
    chosen = (confidences(BATCHES[0]) > threshold).nonzero().flatten()
    got = Confident(views, threshold)(forward, BATCHES[0], z)
    views.reset()
    torch.testing.assert_close(got, views(forward, BATCHES[0][chosen], z[chosen]), **EXACT)
    assert shapes == [(6, 3, 12, 12)] * 2


def test_mistakes_are_explained():
    for method in (*METHODS, "adamixbn"):
        with pytest.raises(BadOption, match="from 0 to 1"):
            da.adapt(network(), method, threshold=1.5)
    with pytest.raises(BadOption, match="no step without a loss"):
        da.adapt(network(), "adamixbn", threshold=0.5)
