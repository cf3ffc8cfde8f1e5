"""The average prediction against sums by hand."""

import pytest
import torch

from domainadaptor.adaptation.ema import EmaPrediction

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
    held = average.memory()
    for _ in range(2):
        average.add(SECOND)
        assert average.before(FIRST).tolist() == [0.6875, 0.1875, 0.125]
        average.recall(held)
        assert average.before(FIRST).tolist() == [0.375, 0.375, 0.25]
    average.reset()
    assert average.empty


def test_it_follows_the_precision_of_the_batch():
    average = EmaPrediction(0.5, uniform=False)
    average.add(FIRST)
    assert average.before(SECOND.float()).dtype == torch.float32
