"""Numbers of records, computed from counts: sums of counts are exact, averages of averages are not."""

import math
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any, Literal

import numpy as np

from domainadaptor.lab.records.runs import EvaluationRecord, Score

Answers = Literal["after", "before", "source"]  # after the step, before it, or of the source model
Array = np.ndarray[Any, Any]
_CORRUPTED = ("cifar10-c", "imagenet-c", "corrupted")  # data sets whose domains show the same images


def scores(records: Iterable[EvaluationRecord]) -> list[Score]:
    """Return the scores of all domains of all records."""
    return [score for record in records for score in record.scores.values()]


def accuracy(records: Sequence[EvaluationRecord], of: Answers = "after") -> float | None:
    """Return the percentage of correct answers over all images; None without images."""
    counts = {"after": "right", "before": "before_right", "source": "source_right"}
    return share(records, counts[of])


def share(records: Iterable[EvaluationRecord], count: str) -> float | None:
    """Return a count in percent of all images; None without images, or where a record lacks the count."""
    found = scores(records)
    images, counts = sum(score.images for score in found), [getattr(score, count) for score in found]
    return 100 * sum(counts) / images if images and None not in counts else None


def standard_error(records: Sequence[EvaluationRecord]) -> float | None:
    """Return the error of an accuracy from the choice of images, in points; an image of several domains counts once."""
    found = scores(records)
    images = sum(score.images for score in found)
    if not images:
        return None
    right = sum(score.right for score in found) / images
    different = images / len(domains(records)) if share_images(records) else images
    return 100 * math.sqrt(right * (1 - right) / different)


def error_of_mean(errors: Sequence[float], shared: bool) -> float:
    """Return the standard error of a mean over columns; that of shared images is hardly smaller than one column's."""
    return fmean(errors) if shared else math.hypot(*errors) / len(errors)


def share_images(records: Sequence[EvaluationRecord]) -> bool:
    """Return whether all domains show the same images."""
    return bool(records) and all(record.run.dataset in _CORRUPTED for record in records)


def domains(records: Iterable[EvaluationRecord]) -> set[str]:
    """Return the names of all domains."""
    return {domain for record in records for domain in record.scores}


def calibration_error(records: Iterable[EvaluationRecord], of: Answers = "after") -> float | None:
    """Return the expected calibration error in percent: confidence against accuracy per bin, weighted by images."""
    name = "source_calibration" if of == "source" else "calibration"
    found = [bins for score in scores(records) if (bins := getattr(score, name))]
    if not found or len({len(bins) for bins in found}) > 1:
        return None
    total = np.sum(np.asarray(found, dtype=float), axis=0)
    images = total[:, 0].sum()
    return float(100 * np.abs(total[:, 1] - total[:, 2]).sum() / images) if images else None


def confusion(records: Iterable[EvaluationRecord], of: Answers = "after") -> Array | None:
    """Return true class x answer, summed over records; None if they have different numbers of classes."""
    name = "source_confusion" if of == "source" else "confusion"
    found = [matrix for score in scores(records) if (matrix := getattr(score, name))]
    return np.sum(np.asarray(found), axis=0) if len({len(matrix) for matrix in found}) == 1 else None


def class_accuracies(records: Sequence[EvaluationRecord]) -> list[tuple[str, float, float]]:
    """Return name, and accuracy of the source model and after adaptation, for each class with images."""
    before, after = confusion(records, "source"), confusion(records)
    if before is None or after is None:
        return []
    return [
        (name, 100 * int(before[at, at]) / images, 100 * int(after[at, at]) / images)
        for at, name in enumerate(records[0].classes)
        if (images := int(after[at].sum()))
    ]


def milliseconds(records: Iterable[EvaluationRecord]) -> float | None:
    """Return milliseconds per batch."""
    timed = [record.seconds for record in records if record.seconds]
    batches = sum(seconds.batches for seconds in timed)
    return 1000 * sum(seconds.adapting for seconds in timed) / batches if batches else None


def source_milliseconds(records: Iterable[EvaluationRecord]) -> float | None:
    """Return milliseconds per batch of the source model."""
    timed = [record.seconds.compared for record in records if record.seconds]
    batches = sum(seconds.batches for seconds in timed)
    return 1000 * sum(seconds.plain for seconds in timed) / batches if batches else None


def relative_time(records: Iterable[EvaluationRecord]) -> float | None:
    """Return the time of adaptation divided by the time of the source model on the same batches."""
    timed = [record.seconds.compared for record in records if record.seconds]
    plain = sum(seconds.plain for seconds in timed)
    return sum(seconds.adapting for seconds in timed) / plain if plain else None


def peak_memory(records: Iterable[EvaluationRecord]) -> float | None:
    """Return the largest peak of memory above the start of a run, in megabytes."""
    return max((record.memory for record in records if record.memory is not None), default=None)
