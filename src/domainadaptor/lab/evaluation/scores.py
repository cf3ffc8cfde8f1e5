"""Results of one domain as counts: sums of counts are exact, averages of averages are not."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from domainadaptor.lab.evaluation.protocols import ImageRef

BINS = 15  # of equal width, for the calibration error
_KEPT = 12  # changed predictions that are kept by name
_MANY = 100  # with more classes, confusions are large and almost empty: no record has them


@dataclass
class Tally:
    """Counts of one domain, updated batch by batch."""

    classes: int
    counts: dict[str, int] = field(default_factory=dict)
    examples: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.confusion, self.source_confusion = (torch.zeros(self.classes, self.classes).long() for _ in range(2))
        self.calibration, self.source_calibration = (torch.zeros(BINS, 3).double() for _ in range(2))

    def add(
        self, items: Sequence[ImageRef], names: Sequence[str], source: Tensor, before: Tensor, after: Tensor
    ) -> None:
        """Add the logits of some images: of the source model, before the step, and after it."""
        labels = torch.tensor([item.label for item in items])
        was, now = source.argmax(1), after.argmax(1)
        was_right, now_right = was == labels, now == labels
        added = {
            "images": torch.ones_like(now_right),
            "source_right": was_right,
            "before_right": before.argmax(1) == labels,
            "right": now_right,
            "better": now_right & ~was_right,
            "worse": was_right & ~now_right,
            "changed": was != now,
        }
        self.counts = {name: self.counts.get(name, 0) + int(flags.sum()) for name, flags in added.items()}
        _count(self.confusion, labels, now)
        _count(self.source_confusion, labels, was)
        was_sure, now_sure = (logits.double().softmax(1).amax(1) for logits in (source, after))
        _bin(self.calibration, now_sure, now_right)
        _bin(self.source_calibration, was_sure, was_right)
        for at in (was != now).nonzero().flatten().tolist():
            # The same number of corrected predictions and of others is kept.
            alike = [kept for kept in self.examples if (kept["adapted"] == kept["label"]) == bool(now_right[at])]
            if len(alike) < _KEPT // 2:
                numbers = {"label": int(labels[at]), "source": int(was[at]), "adapted": int(now[at])}
                sure = {"source_confidence": round(float(was_sure[at]), 4), "confidence": round(float(now_sure[at]), 4)}
                self.examples.append({"name": names[at], **numbers, **sure})

    def score(self) -> dict[str, Any]:
        """Return the fields of `lab.records.runs.Score`."""
        return {
            **self.counts,
            "confusion": self.confusion.tolist() if self.classes <= _MANY else [],
            "source_confusion": self.source_confusion.tolist() if self.classes <= _MANY else [],
            "calibration": _rounded(self.calibration),
            "source_calibration": _rounded(self.source_calibration),
            "examples": self.examples,
        }


def _count(matrix: Tensor, rows: Tensor, columns: Tensor) -> None:
    classes = len(matrix)
    matrix += torch.bincount(rows * classes + columns, minlength=classes**2).view(classes, classes)


def _bin(bins: Tensor, confidence: Tensor, right: Tensor) -> None:
    at = (confidence * BINS).long().clamp(max=BINS - 1)
    bins.index_add_(0, at, torch.stack([torch.ones_like(confidence), confidence, right.double()], 1))


def _rounded(bins: Tensor) -> list[list[float]]:
    return [[int(count), round(confidence, 6), int(right)] for count, confidence, right in bins.tolist()]
