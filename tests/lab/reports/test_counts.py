import math

import numpy as np
import pytest

from domainadaptor.lab.records.runs import ComparedSeconds, Seconds
from domainadaptor.lab.reports.counts import (
    accuracy,
    calibration_error,
    confusion,
    milliseconds,
    peak_memory,
    relative_time,
    source_milliseconds,
)
from tests.lab.reports.folder import Folder


@pytest.fixture
def two(tmp_path):
    """Two records of very different sizes."""
    small, large = Folder(tmp_path, images=10), Folder(tmp_path, images=90)
    return small.record(["photo"], "tent"), large.record(["sketch"], "tent")


def test_accuracy_pools_counts_and_never_averages(two):
    right = [next(iter(record.scores.values())).right for record in two]
    assert accuracy(two) == sum(right)
    assert accuracy(two) != pytest.approx((100 * right[0] / 10 + 100 * right[1] / 90) / 2)
    source = [next(iter(record.scores.values())).source_right for record in two]
    assert accuracy(two, "source") == sum(source)
    assert accuracy([]) is None


def test_accuracy_pools_the_domains_of_a_record(two):
    both = two[0].model_copy(update={"scores": {**two[0].scores, **two[1].scores}})
    assert accuracy([both]) == accuracy(two)


def test_calibration_error_is_the_literal_sum_over_bins(two):
    rng = np.random.default_rng(0)
    sure, right = rng.random(500), rng.random(500) < 0.6
    at = np.minimum((sure * 15).astype(int), 14)
    bins = [(int((at == b).sum()), float(sure[at == b].sum()), int(right[at == b].sum())) for b in range(15)]
    literal = 0.0
    for number in range(15):
        inside = [number == min(14, int(confidence * 15)) for confidence in sure]
        if any(inside):
            literal += sum(inside) / 500 * abs(np.mean(right[inside]) - np.mean(sure[inside]))
    # Counted in two records, it is still that of all images together.
    halves = [tuple(b if number % 2 == half else (0, 0.0, 0) for number, b in enumerate(bins)) for half in (0, 1)]
    records = []
    for record, half in zip(two, halves, strict=True):
        ((domain, score),) = record.scores.items()
        records.append(record.model_copy(update={"scores": {domain: score.model_copy(update={"calibration": half})}}))
    assert math.isclose(calibration_error(records), 100 * literal, rel_tol=1e-9)
    assert calibration_error([]) is None


def test_time_is_per_batch_and_relative_to_the_source_model_on_the_same_batches(two):
    def timed(batches, adapting, compared):
        shared = ComparedSeconds(batches=compared[0], adapting=compared[1], plain=compared[2])
        seconds = Seconds(batches=batches, images=1, adapting=adapting, compared=shared)
        return two[0].model_copy(update={"seconds": seconds})

    records = [timed(2, 0.6, (2, 0.6, 0.2)), timed(6, 1.0, (6, 1.0, 0.2))]
    assert milliseconds(records) == pytest.approx(200)
    assert source_milliseconds(records) == pytest.approx(50)
    assert relative_time(records) == pytest.approx(4)
    # Here the source model was timed on some of the batches only.
    later = timed(6, 5.0, (2, 3.0, 1.0))
    assert milliseconds([later]) == pytest.approx(5000 / 6)
    assert source_milliseconds([later]) == pytest.approx(500)
    assert relative_time([*records, later]) == pytest.approx((0.6 + 1 + 3) / (0.2 + 0.2 + 1))
    unknown = two[0].model_copy(update={"seconds": None})
    assert milliseconds([unknown]) is source_milliseconds([unknown]) is relative_time([unknown]) is None


def test_memory_is_that_of_the_worst_run(two):
    first, second = (
        record.model_copy(update={"memory": value}) for record, value in zip(two, (3.0, None), strict=True)
    )
    assert peak_memory([first, second, first.model_copy(update={"memory": 7.5})]) == 7.5
    assert peak_memory([second]) is None


def test_confusion_is_a_sum(two):
    matrices = [np.array(next(iter(record.scores.values())).confusion) for record in two]
    assert (confusion(two) == sum(matrices)).all()
    assert confusion([], "source") is None
