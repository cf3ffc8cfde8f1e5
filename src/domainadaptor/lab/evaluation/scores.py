"""What came of the images of one domain, as counts: sums of counts are exact, averages of averages are not."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from domainadaptor.lab.evaluation.protocols import ImageRef

BINS = 15  # of equal width, for the calibration error
_SHOWN = 12  # changed answers that are kept by name


@dataclass
class Tally:
    """Counts of one domain, growing batch by batch."""

    classes: int
    images: int = 0
    source_right: int = 0
    before_right: int = 0
    right: int = 0
    better: int = 0  # wrong before, right now
    worse: int = 0  # right before, wrong now
    changed: int = 0
    confusion: Tensor = field(init=False)  # true class x answer
    source_confusion: Tensor = field(init=False)
    calibration: Tensor = field(init=False)  # bin x (images, sum of confidence, right)
    source_calibration: Tensor = field(init=False)
    examples: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.confusion, self.source_confusion = (torch.zeros(self.classes, self.classes).long() for _ in range(2))
        self.calibration, self.source_calibration = (torch.zeros(BINS, 3).double() for _ in range(2))

    def add(
        self, items: Sequence[ImageRef], names: Sequence[str], source: Tensor, before: Tensor, after: Tensor
    ) -> None:
        """The logits of some images: of the source network, before the step, and after it."""
        labels = torch.tensor([item.label for item in items])
        was, now = source.argmax(1), after.argmax(1)
        was_right, now_right = was == labels, now == labels
        self.images += len(items)
        self.source_right += int(was_right.sum())
        self.before_right += int((before.argmax(1) == labels).sum())
        self.right += int(now_right.sum())
        self.better += int((now_right & ~was_right).sum())
        self.worse += int((was_right & ~now_right).sum())
        self.changed += int((was != now).sum())
        _count(self.confusion, labels, now)
        _count(self.source_confusion, labels, was)
        was_sure, now_sure = (logits.double().softmax(1).amax(1) for logits in (source, after))
        _bin(self.calibration, now_sure, now_right)
        _bin(self.source_calibration, was_sure, was_right)
        for at in (was != now).nonzero().flatten().tolist():
            self._keep(
                {
                    "name": names[at],
                    "label": int(labels[at]),
                    "source": int(was[at]),
                    "adapted": int(now[at]),
                    "source_confidence": round(float(was_sure[at]), 4),
                    "confidence": round(float(now_sure[at]), 4),
                }
            )

    def _keep(self, example: dict[str, Any]) -> None:
        """Up to half for the better, half for the worse or neither."""
        gained = example["adapted"] == example["label"]
        alike = sum((held["adapted"] == held["label"]) == gained for held in self.examples)
        if alike < _SHOWN // 2:
            self.examples.append(example)

    def score(self) -> dict[str, Any]:
        """The counts, for a record."""
        return {
            "images": self.images,
            "source_right": self.source_right,
            "before_right": self.before_right,
            "right": self.right,
            "better": self.better,
            "worse": self.worse,
            "changed": self.changed,
            "confusion": self.confusion.tolist(),
            "source_confusion": self.source_confusion.tolist(),
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
