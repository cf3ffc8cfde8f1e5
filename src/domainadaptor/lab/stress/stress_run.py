"""Streams hostile batches through a method, with and without the guard, and probes what is left on the way."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

import domainadaptor
from domainadaptor.lab.stress.probe import probe_accuracy, source_accuracy
from domainadaptor.lab.stress.streams import HOSTILE, Labeled, Pool, stream


@dataclass(frozen=True)
class StressConfig:
    """How long streams are, and how often they are looked at."""

    batches: int = 1000
    every: int = 50
    batch_size: int = 64
    seed: int = 0


@dataclass(frozen=True)
class Course:
    """What one stream did to one adaptor."""

    kind: str
    guard: bool
    at: tuple[int, ...]  # after how many batches the probe was made
    accuracy: tuple[float, ...]  # of the probe, in percent
    trips: tuple[int, ...]  # at which batches the guard went back to the source
    other_notes: tuple[str, ...]  # what else the adaptor had to say
    seconds: float

    @property
    def lowest(self) -> float:
        """The worst probe after any batch."""
        return min(self.accuracy)

    @property
    def last(self) -> float:
        """The probe after the last batch."""
        return self.accuracy[-1]

    @property
    def hostile(self) -> bool:
        """Whether it was made to mislead."""
        return self.kind in HOSTILE


@dataclass(frozen=True)
class StressReport:
    """A method under every kind of stream."""

    method: str
    options: Mapping[str, Any]
    setting: StressConfig
    probe: int  # images
    source: float  # percent of the probe that the source network gets right
    start: float  # percent that the method gets right before any batch
    courses: tuple[Course, ...]

    def of(self, kind: str, guard: bool) -> Course | None:
        """The course of that kind, if there is one."""
        return next((course for course in self.courses if (course.kind, course.guard) == (kind, guard)), None)

    def kinds(self) -> list[str]:
        """The kinds of streams, in the order in which they ran."""
        return list(dict.fromkeys(course.kind for course in self.courses))

    def loss(self, guard: bool) -> float | None:
        """The most points below the source after any hostile batches; None if none were streamed."""
        found = [course.lowest for course in self.courses if course.guard == guard and course.hostile]
        return self.source - min(found) if found else None

    def as_json(self) -> dict[str, Any]:
        """Everything, for a program to read."""
        courses = [{**asdict(c), "lowest": c.lowest, "last": c.last} for c in self.courses]
        return {
            "version": domainadaptor.__version__,
            "torch": torch.__version__,
            "method": self.method,
            "options": {name: _plain(value) for name, value in self.options.items()},
            **asdict(self.setting),
            "probe_images": self.probe,
            "source_accuracy": self.source,
            "start_accuracy": self.start,
            "most_points_below_source": {"guard": self.loss(True), "no_guard": self.loss(False)},
            "courses": courses,
        }


def run_stress(
    network: nn.Module,
    method: str,
    options: Mapping[str, Any],
    pool: Pool,
    probe: Labeled,
    *,
    setting: StressConfig,
    kinds: Sequence[str],
    guards: Sequence[bool],
    progress: Callable[[str], None],
) -> StressReport:
    """Streams every kind of batches through a fresh adaptor each, and measures the probe on the way.

    Args:
        network: A trained network, on its device.
        method: Its name.
        options: Its options.
        pool: What streams are made of.
        probe: Clean images that no stream holds.
        setting: How long streams are, and how often they are looked at.
        kinds: Of streams.
        guards: With the guard, without it, or both.
        progress: Called after each batch, `amount_of_work` times.
    """
    device = next((p.device for p in network.parameters()), torch.device("cpu"))
    probe = Labeled(*(tensor.to(device) for tensor in probe))
    plain = domainadaptor.adapt(network, "source")
    fresh = domainadaptor.adapt(network, method, **options)
    source = source_accuracy(plain, probe, setting.batch_size)
    start = probe_accuracy(fresh, probe, setting.batch_size)
    courses = []
    for kind in kinds:
        for guard in guards:
            adaptor = domainadaptor.adapt(network, method, guard=guard, **options)
            what = f"{kind}, {'with' if guard else 'without'} the guard"
            courses.append(_course(adaptor, kind, guard, pool, probe, setting, device, partial(progress, what)))
    return StressReport(method, dict(options), setting, len(probe.labels), source, start, tuple(courses))


def amount_of_work(setting: StressConfig, kinds: Sequence[str], guards: Sequence[bool]) -> int:
    """How often `run_stress` calls `progress`."""
    return setting.batches * len(kinds) * len(guards)


def _course(
    adaptor: domainadaptor.Adaptor,
    kind: str,
    guard: bool,
    pool: Pool,
    probe: Labeled,
    setting: StressConfig,
    device: torch.device,
    tick: Callable[[], None],
) -> Course:
    begun = time.perf_counter()
    at, accuracy, trips = [], [], []
    notes: dict[str, None] = {}
    batches = stream(kind, pool, batches=setting.batches, batch_size=setting.batch_size, seed=setting.seed)
    for number, images in enumerate(batches, start=1):
        result = adaptor.adapt(images.to(device))
        if result.collapsed:
            trips.append(number)
        elif result.note:
            notes[result.note] = None
        if number % setting.every == 0 or number == setting.batches:
            at.append(number)
            accuracy.append(probe_accuracy(adaptor, probe, setting.batch_size))
        tick()
    seconds = time.perf_counter() - begun
    return Course(kind, guard, tuple(at), tuple(accuracy), tuple(trips), tuple(notes), seconds)


def _plain(value: object) -> object:
    """An option as JSON has it; images and heads are too large for a record."""
    return value if value is None or isinstance(value, (bool, int, float, str)) else f"<{type(value).__name__}>"
