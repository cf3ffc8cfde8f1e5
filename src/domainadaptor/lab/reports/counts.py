"""Numbers of records, each from counts: sums of counts are exact, averages of averages are not."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

_RIGHT = {"after": "right", "before": "before_right", "source": "source_right"}


def total(records: Iterable[Mapping[str, Any]], count: str) -> int:
    """A count, summed over all domains of all records."""
    return sum(score.get(count, 0) for record in records for score in record["scores"].values())


def accuracy(records: Sequence[Mapping[str, Any]], of: str = "after") -> float | None:
    """Percent of all images of some records that were right; None without images."""
    if of == "before" and any("before_right" not in score for r in records for score in r["scores"].values()):
        return None
    images = total(records, "images")
    return 100 * total(records, _RIGHT[of]) / images if images else None


def calibration_error(records: Iterable[Mapping[str, Any]], of: str = "after") -> float | None:
    """The expected calibration error in percent: how far confidence is from accuracy, bin by bin, by images."""
    name = "source_calibration" if of == "source" else "calibration"
    found = [score[name] for record in records for score in record["scores"].values() if score.get(name)]
    if not found or len({len(bins) for bins in found}) > 1:
        return None
    bins = np.sum(np.asarray(found, dtype=float), axis=0)
    images = bins[:, 0].sum()
    return float(100 * np.abs(bins[:, 1] - bins[:, 2]).sum() / images) if images else None


def confusion(records: Iterable[Mapping[str, Any]], of: str = "after") -> np.ndarray[Any, Any] | None:
    """True class x answer, summed over some records of the same classes."""
    name = "source_confusion" if of == "source" else "confusion"
    found = [score[name] for record in records for score in record["scores"].values() if score.get(name)]
    return np.sum(np.asarray(found), axis=0) if found else None


def milliseconds(records: Sequence[Mapping[str, Any]]) -> float | None:
    """Of a batch."""
    batches = _seconds(records, "batches")
    return 1000 * _seconds(records, "adapting") / batches if batches else None


def plain_milliseconds(records: Sequence[Mapping[str, Any]]) -> float | None:
    """Of plain inference of a batch."""
    batches = _compared(records, "batches")
    return 1000 * _compared(records, "plain") / batches if batches else None


def ratio(records: Sequence[Mapping[str, Any]]) -> float | None:
    """How many plain inferences of the same batches adapting took."""
    plain = _compared(records, "plain")
    return _compared(records, "adapting") / plain if plain else None


def memory(records: Iterable[Mapping[str, Any]]) -> float | None:
    """Megabytes above the start at the worst moment of the worst run."""
    return max((record["memory"] for record in records if record.get("memory") is not None), default=None)


def _seconds(records: Iterable[Mapping[str, Any]], name: str) -> float:
    return float(sum(record.get("seconds", {}).get(name, 0) for record in records))


def _compared(records: Iterable[Mapping[str, Any]], name: str) -> float:
    """Of those batches on which plain inference was timed; older records have it for all."""
    timed = (record.get("seconds", {}) for record in records)
    return float(sum(seconds.get("compared", seconds).get(name, 0) for seconds in timed))
