"""Streams hostile batches through a method, with and without the guard, and probes its accuracy on the way."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

import domainadaptor
from domainadaptor.adaptation.adaptor import Adaptor
from domainadaptor.lab.stress.streams import HOSTILE, LabeledImages, StreamImages, stream


@dataclass(frozen=True)
class Course:
    """The effect of one stream on one adaptor."""

    kind: str
    guard: bool
    at: tuple[int, ...]  # after how many batches the probe was measured
    accuracy: tuple[float, ...]  # of the probe, in percent
    trips: tuple[int, ...]  # batches at which the guard went back to the source model
    other_notes: tuple[str, ...]
    seconds: float

    @property
    def lowest(self) -> float:
        """The lowest accuracy after any batch."""
        return min(self.accuracy)

    @property
    def last(self) -> float:
        """The accuracy after the last batch."""
        return self.accuracy[-1]


@dataclass(frozen=True)
class StressReport:
    """A method under every kind of stream."""

    method: str
    settings: Mapping[str, Any]  # options of the method, length of streams, and more, for records
    probe: int  # images
    source: float  # accuracy of the source model on the probe, in percent
    start: float  # accuracy of the method before any batch
    courses: tuple[Course, ...]

    def of(self, kind: str, guard: bool) -> Course | None:
        """Return the course of that kind, if there is one."""
        return next((course for course in self.courses if (course.kind, course.guard) == (kind, guard)), None)

    def kinds(self) -> list[str]:
        """Return the kinds of streams in the order in which they ran."""
        return list(dict.fromkeys(course.kind for course in self.courses))

    def loss(self, guard: bool) -> float | None:
        """Return by how many points hostile streams fall below the source model at worst; None without any."""
        found = [course.lowest for course in self.courses if course.guard == guard and course.kind in HOSTILE]
        return self.source - min(found) if found else None

    def as_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "version": domainadaptor.__version__,
            "torch": torch.__version__,
            "method": self.method,
            **self.settings,
            "probe_images": self.probe,
            "source_accuracy": self.source,
            "start_accuracy": self.start,
            "most_points_below_source": {"guard": self.loss(True), "no_guard": self.loss(False)},
            "courses": [{**asdict(c), "lowest": c.lowest, "last": c.last} for c in self.courses],
        }


@dataclass(frozen=True)
class StressTest:
    """A method, the streams that it gets, and the probe."""

    network: nn.Module  # trained, on its device
    method: str
    options: Mapping[str, Any]
    images: StreamImages
    probe: LabeledImages  # clean images that no stream contains, on the same device
    kinds: Sequence[str]
    guards: Sequence[bool]  # with the guard, without it, or both
    batches: int = 50  # per stream
    every: int = 10  # batches after which the probe is measured
    batch_size: int = 64
    seed: int = 0

    def run(self, progress: Callable[[str], None], finished: Callable[[Course], None] = lambda _: None) -> StressReport:
        """Stream every kind of batches through a new adaptor each, and measure the probe on the way.

        `progress` is called after each batch with what is running, `finished` after each stream with its result.
        """
        source = source_accuracy(domainadaptor.adapt(self.network, "source"), self.probe, self.batch_size)
        start = probe_accuracy(self._adaptor(), self.probe, self.batch_size)
        courses = []
        for kind, guard in product(self.kinds, self.guards):
            courses.append(self._course(kind, guard, progress))
            finished(courses[-1])
        settings = {name: getattr(self, name) for name in ("batches", "every", "batch_size", "seed")}
        settings["options"] = {name: _json_value(value) for name, value in self.options.items()}
        return StressReport(self.method, settings, len(self.probe.labels), source, start, tuple(courses))

    def _course(self, kind: str, guard: bool, progress: Callable[[str], None]) -> Course:
        adaptor, device = self._adaptor(guard=guard), self.probe.images.device
        start = time.perf_counter()
        at, accuracy, trips = [], [], []
        notes: dict[str, None] = {}
        batches = stream(kind, self.images, batches=self.batches, batch_size=self.batch_size, seed=self.seed)
        for number, images in enumerate(batches, start=1):
            result = adaptor.adapt(images.to(device))
            if result.collapsed:
                trips.append(number)
            elif result.note:
                notes[result.note] = None
            if number % self.every == 0 or number == self.batches:
                at.append(number)
                accuracy.append(probe_accuracy(adaptor, self.probe, self.batch_size))
            progress(f"{kind}, {'with' if guard else 'without'} the guard")
        seconds = time.perf_counter() - start
        return Course(kind, guard, tuple(at), tuple(accuracy), tuple(trips), tuple(notes), seconds)

    def _adaptor(self, **more: Any) -> Adaptor:
        return domainadaptor.adapt(self.network, self.method, **self.options, **more)


def probe_accuracy(adaptor: Adaptor, probe: LabeledImages, batch_size: int) -> float:
    """Return the accuracy in percent with the current weights and statistics, without changing them.

    Each batch is predicted as if it came next: with a guard, by the source model if the guard reacts.
    """
    return _percent(lambda images: adaptor.peek(images).logits, probe, batch_size)


def source_accuracy(adaptor: Adaptor, probe: LabeledImages, batch_size: int) -> float:
    """Return the accuracy of the source model in percent."""
    return _percent(adaptor.source_logits, probe, batch_size)


def _percent(predict: Callable[[Tensor], Tensor], probe: LabeledImages, batch_size: int) -> float:
    # Batches of nearly equal size: a remainder of a few images would be predicted differently.
    parts = max(1, -(-len(probe.images) // batch_size))
    chunks = zip(probe.images.tensor_split(parts), probe.labels.tensor_split(parts), strict=True)
    correct = sum(int((predict(images).argmax(1).cpu() == labels.cpu()).sum()) for images, labels in chunks)
    return 100 * correct / len(probe.images)


def _json_value(value: object) -> object:
    """Return an option as JSON; tensors and modules are too large for a record."""
    return value if value is None or isinstance(value, bool | int | float | str) else f"<{type(value).__name__}>"
