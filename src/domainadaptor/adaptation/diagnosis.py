"""Diagnosis: what `diagnose` found, as numbers and as plain sentences."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from domainadaptor.adaptation.calibrate import FEWEST, LayerShift
from domainadaptor.adaptation.estimate import Expectation

Size = Literal["none", "small", "clear", "large"]
# The mean shift of the layers up to which it is called so.
_SIZES: tuple[tuple[float, Size], ...] = ((0.12, "none"), (0.3, "small"), (0.8, "clear"))
_PARTS = (
    "the early layers, which see color, contrast and texture",
    "the middle layers, which see patterns and parts of objects",
    "the late layers, which see whole objects",
)
_ENOUGH = 0.05  # a batch size with this much less agreement than the largest is as good


class ChangedAnswer(NamedTuple):
    """An image whose answer changes: its position among all images, and class and confidence before and after."""

    position: int
    before: int
    after: int
    before_confidence: float
    after_confidence: float


class BatchSize(NamedTuple):
    """How many answers of a forward pass with batches of this size equal those with statistics of all images."""

    images: int
    agreement: float


class Cost(NamedTuple):
    """What a batch costs on this machine."""

    forwards: float  # forward passes, by the operations of the layers
    seconds: float
    seconds_plain: float  # without adapting


@dataclass(frozen=True)
class Diagnosis:
    """What `diagnose` found. Shares and accuracies are between 0 and 1.

    Example:
        >>> found = da.diagnose(network, torch.randn(64, 3, 16, 16))
        >>> found.layers[0].name, found.shift >= 0
        ('1', ...)
    """

    images: int
    batch_size: int
    layers: tuple[LayerShift, ...]
    expected: Expectation  # in the order of the images
    shuffled: Expectation | None  # if they were shuffled; None if their order is as good
    changed: tuple[ChangedAnswer, ...]
    batch_sizes: tuple[BatchSize, ...]
    cost: Cost
    warnings: tuple[str, ...]  # why these images or batches are unsuitable

    @property
    def shift(self) -> float:
        """The mean shift of the layers, as `Calibration.layers` defines it; 0 is what chance explains."""
        return sum(layer.shift for layer in self.layers) / len(self.layers)

    @property
    def chance(self) -> float:
        """The distance of a layer's statistics from the source model's that so many images have without a shift."""
        return 1 / max(self.images - 1, 1)

    @property
    def size(self) -> Size:
        """The shift in a word."""
        return next((size for most, size in _SIZES if self.shift < most), "large")

    @property
    def share_changed(self) -> float:
        """The share of images whose answer changes."""
        return len(self.changed) / self.images

    @property
    def method(self) -> Literal["auto", "calibrate", "source"]:
        """What to use: "source" is the network as it is."""
        if (self.shuffled or self.expected).outcome != "better":
            return "source"
        return "calibrate" if self.warnings else "auto"

    @property
    def best_batch_size(self) -> int:
        """The smallest batch size that is as good as the largest."""
        if not self.batch_sizes:
            return self.batch_size
        least = max(size.agreement for size in self.batch_sizes) - _ENOUGH
        return min(size.images for size in self.batch_sizes if size.agreement >= least)

    @property
    def headline(self) -> str:
        """The verdict in a sentence."""
        if self.images < FEWEST:
            return "Too few images to tell."
        if self.shuffled is not None and self.expected.outcome != "better":
            return "Do not adapt to the images in this order."
        if self.expected.outcome == "same" and self.size == "none":
            return "Nothing to adapt."
        return self.expected.headline

    @property
    def sentences(self) -> tuple[str, ...]:
        """What was found, in words."""
        thirds = _thirds([max(layer.shift, 0.0) for layer in self.layers])
        seen = (
            "These images look like those that the network was trained on."
            if self.size == "none"
            else f"The difference between these images and those that the network was trained on is {self.size}. It is "
            f"largest in {_PARTS[thirds.index(max(thirds))]}."
        )
        return (
            seen,
            self.expected.sentence,
            f"Adapting changes {len(self.changed)} of {self.images} answers ({self.share_changed:.0%}).",
        )

    @property
    def advice(self) -> str:
        """What to do, in words."""
        if self.method == "source":
            return "Use the network as it is."
        calibrated = "a network that is calibrated on such images costs nothing more and takes single images"
        if self.method == "calibrate":
            return f"Calibrate the network on shuffled images of this kind: {calibrated}."
        size = self.best_batch_size
        batches = f"in batches of {size} or more" if size > 1 else "in batches of any size"
        return (
            f"Use the method auto {batches}. It takes {self.cost.forwards:.3g} forward passes instead of one. Where "
            f"that is too much, {calibrated}."
        )

    def as_json(self) -> dict[str, Any]:
        """Return everything, for programs."""
        own = (
            "headline",
            "sentences",
            "advice",
            "method",
            "best_batch_size",
            "shift",
            "size",
            "chance",
            "share_changed",
        )
        return {
            **{name: getattr(self, name) for name in own},
            "accuracy_before": self.expected.before._asdict(),
            "accuracy_after": self.expected.after._asdict(),
            "outcome": self.expected.outcome,
            "shuffled": None if self.shuffled is None else self.shuffled.after._asdict(),
            "images": self.images,
            "batch_size": self.batch_size,
            "cost": self.cost._asdict(),
            "warnings": self.warnings,
            "layers": [layer._asdict() for layer in self.layers],
            "batch_sizes": [size._asdict() for size in self.batch_sizes],
            "changed": [answer._asdict() for answer in self.changed],
        }


def _thirds(values: list[float]) -> list[float]:
    """Return the means of the first, the middle and the last third."""
    edges = [round(part * len(values) / 3) for part in range(4)]
    return [sum(values[low:high]) / max(high - low, 1) for low, high in pairwise(edges)]
