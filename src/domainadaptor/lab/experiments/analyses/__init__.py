"""Measurements other than accuracy. The folder is the registry: a file exports one function and is found by its name.

A measurement takes `MeasurementInputs` and keyword options, and returns a pydantic model, whose fields are recorded.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from torch import Tensor

from domainadaptor import registry
from domainadaptor.lab.data.domains import DomainDataset
from domainadaptor.lab.evaluation.protocols import Segment
from domainadaptor.lab.evaluation.stream import SegmentLoader
from domainadaptor.lab.networks.loading import LoadedNetwork
from domainadaptor.lab.records.base import RecordModel

Measurement = Callable[..., RecordModel]
F = TypeVar("F", bound=Measurement)


@dataclass(frozen=True)
class MeasurementInputs:
    """A network, and test images in the order of a protocol."""

    opened: LoadedNetwork
    dataset: DomainDataset
    test: SegmentLoader
    segments: Sequence[Segment]
    checkpoint: Path | None

    def batches(self) -> list[Tensor]:
        """Return the images in batches."""
        return [pixels for _, items, pixels in self.test.batches(self.segments) if items]


def without_images(measurement: F) -> F:
    """Mark a measurement that reads the network and its training record only."""
    measurement.without_images = True  # type: ignore[attr-defined]
    return measurement


def needs_images(name: str) -> bool:
    """Return whether a run looks at test images: an evaluation does (its measurement is "")."""
    return not name or not getattr(find_measurement(name), "without_images", False)


def measurements() -> list[str]:
    """Return the names of all measurements."""
    return list(registry.entries(__name__))


def find_measurement(name: str) -> Measurement:
    """Return a measurement; a BadOption if there is none of that name."""
    return registry.find(__name__, "measurement", name)
