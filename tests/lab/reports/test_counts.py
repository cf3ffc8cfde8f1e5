import math

import numpy as np
import pytest

from domainadaptor.lab.reports.counts import (
    accuracy,
    calibration_error,
    confusion,
    memory,
    milliseconds,
    plain_milliseconds,
    ratio,
    total,
)


def record(images, right, **more):
    score = {"images": images, "right": right, "source_right": right - 1, "before_right": right - 2}
    return {"scores": {"a": score}, **more}


def test_accuracy_pools_counts_and_never_averages():
    records = [record(10, 9), record(90, 9)]
    assert accuracy(records) == 18.0  # the average of averages would be 50
    assert accuracy(records, "source") == 16.0
    assert accuracy(records, "before") == 14.0
    assert total(records, "images") == 100
    assert accuracy([]) is None


def test_accuracy_pools_the_domains_of_a_record():
    two = {"scores": {"a": record(10, 9)["scores"]["a"], "b": record(90, 9)["scores"]["a"]}}
    assert accuracy([two]) == 18.0


def test_calibration_error_is_the_literal_sum_over_bins():
    rng = np.random.default_rng(0)
    sure, right = rng.random(500), rng.random(500) < 0.6
    bins = [[0, 0.0, 0] for _ in range(15)]
    for confidence, correct in zip(sure, right, strict=True):
        entry = bins[min(14, int(confidence * 15))]
        entry[0] += 1
        entry[1] += confidence
        entry[2] += int(correct)
    literal = 0.0
    for at in range(15):
        inside = [at == min(14, int(confidence * 15)) for confidence in sure]
        if any(inside):
            gap = abs(np.mean(right[inside]) - np.mean(sure[inside]))
            literal += sum(inside) / 500 * gap
    # Counted in two records, it is still that of all images together.
    halves = [[[c[0] if keep else 0, c[1] if keep else 0.0, c[2] if keep else 0] for c in bins] for keep in (1, 0)]
    records = [{"scores": {"a": {"calibration": half}}} for half in halves]
    assert math.isclose(calibration_error(records), 100 * literal, rel_tol=1e-9)
    assert calibration_error(records, "source") is None


def test_time_is_per_batch_and_against_plain():
    records = [
        {"seconds": {"batches": 2, "adapting": 0.6, "plain": 0.2}},
        {"seconds": {"batches": 6, "adapting": 1, "plain": 0.2}},
    ]
    assert milliseconds(records) == pytest.approx(200)
    assert plain_milliseconds(records) == pytest.approx(50)
    assert ratio(records) == pytest.approx(4)
    # In these, plain inference was timed on some of the batches: the first are slow.
    later = {"batches": 6, "adapting": 5, "compared": {"batches": 2, "adapting": 3, "plain": 1}}
    assert milliseconds([{"seconds": later}]) == pytest.approx(5000 / 6)
    assert plain_milliseconds([{"seconds": later}]) == pytest.approx(500)
    assert ratio([{"seconds": later}]) == pytest.approx(3)
    assert ratio([*records, {"seconds": later}]) == pytest.approx((0.6 + 1 + 3) / (0.2 + 0.2 + 1))
    assert milliseconds([{}]) is None
    assert plain_milliseconds([{}]) is None
    assert ratio([{}]) is None


def test_memory_is_the_worst():
    assert memory([{"memory": 3.0}, {"memory": None}, {"memory": 7.5}]) == 7.5
    assert memory([{"memory": None}]) is None


def test_confusion_is_a_sum():
    records = [{"scores": {"a": {"confusion": [[1, 2], [3, 4]]}, "b": {"confusion": [[1, 0], [0, 1]]}}}]
    assert confusion(records).tolist() == [[2, 2], [3, 5]]
    assert confusion(records, "source") is None
