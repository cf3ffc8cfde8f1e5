"""Signals of answers against a computation image by image, and what follows from them."""

import math

import pytest

from domainadaptor.adaptation.estimate import Answers, Signals, expect
from tests.conftest import batch

SOURCE, ADAPTED = (3 * batch(50, 6, seed=seed) for seed in (1, 2))


def test_signals_are_means_over_the_images_however_they_are_split():
    changed = preference = confidence = 0.0
    for source, adapted in zip(SOURCE.tolist(), ADAPTED.tolist(), strict=True):
        p = [math.exp(value) / sum(map(math.exp, adapted)) for value in adapted]
        old, new = source.index(max(source)), p.index(max(p))
        changed += (old != new) / 50
        preference += (p[new] - p[old]) / 50
        confidence += p[new] / 50
    for sizes in ([50], [20, 30], [1] * 50):
        answers = Answers()
        for pair in zip(SOURCE.split(sizes), ADAPTED.split(sizes), strict=True):
            answers.add(*pair)
        assert answers.signals() == pytest.approx(Signals(50, changed, preference, confidence))


@pytest.mark.parametrize(
    ("changed", "preference", "outcome"),
    [(0.02, 0.005, "same"), (0.3, 0.2, "better"), (0.7, 0.45, "better"), (0.3, 0.01, "worse")],
)
def test_the_outcome_follows_from_how_much_more_probable_the_new_answers_are(changed, preference, outcome):
    assert expect(Signals(512, changed, preference, 0.8)).outcome == outcome


def test_a_few_images_decide_nothing():
    assert expect(Signals(512, 0.3, 0.2, 0.8)).outcome == "better"
    assert expect(Signals(6, 0.3, 0.2, 0.8)).outcome == "same"


@pytest.mark.parametrize("changed", [0.0, 1.0])
@pytest.mark.parametrize("confidence", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("images", [1, 300])
def test_estimates_are_shares_even_at_the_ends(changed, confidence, images):
    for preference in {0.0, confidence * changed}:
        found = expect(Signals(images, changed, preference, confidence))
        assert 0 <= found.before.value <= 1
        assert 0 < found.after.value < 1
