"""Runs an adaptor through the segments of a protocol; no method sees labels."""

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from domainadaptor.adaptation.adaptor import Adaptor
from domainadaptor.adaptation.comparison import Comparison
from domainadaptor.adaptation.logits import read_logits
from domainadaptor.lab.data.image_cache import DomainImages
from domainadaptor.lab.data.prefetch import prefetch
from domainadaptor.lab.data.preprocessing import Preprocessing
from domainadaptor.lab.evaluation.protocols import ImageRef, Segment
from domainadaptor.lab.evaluation.scores import Tally
from domainadaptor.lab.measure import PeakMemory, timed

Counted = Callable[[int, int], None]  # images done, total
SourceLogits = MutableMapping[tuple[ImageRef, ...], Tensor]  # batch -> logits of the source model
_TIMED = 8  # batches on which the source model is timed even if its logits are known


@dataclass(frozen=True)
class SegmentLoader:
    """Loads the images of segments."""

    pictures: Mapping[str, DomainImages]  # domain -> its images
    preprocessing: Preprocessing
    device: torch.device

    def batches(self, segments: Sequence[Segment]) -> Iterator[tuple[int, list[ImageRef], Tensor]]:
        """Yield the number of the segment, the readable images, and their pixels; the next batch loads meanwhile."""
        return prefetch(self._load(at, batch) for at, segment in enumerate(segments) for batch in segment.batches)

    def _load(self, at: int, batch: Sequence[ImageRef]) -> tuple[int, list[ImageRef], Tensor]:
        found: dict[ImageRef, Tensor] = {}
        for domain in dict.fromkeys(item.domain for item in batch):
            own = {item.position: item for item in batch if item.domain == domain}
            pixels, there = self.pictures[domain].take(list(own))
            found |= {own[position]: image for position, image in zip(there, pixels, strict=True)}
        items = [item for item in batch if item in found]
        if not items:
            return at, [], torch.empty(0)
        return at, items, self.preprocessing.normalized(torch.stack([found[item] for item in items]))

    def name(self, item: ImageRef) -> str:
        """Return the name of an image in its domain."""
        return self.pictures[item.domain].domain.examples[item.position].name


def evaluate_stream(
    adaptor: Adaptor,
    segments: Sequence[Segment],
    images: SegmentLoader,
    classes: int,
    *,
    progress: Counted = lambda *_: None,
    known: SourceLogits | None = None,
) -> dict[str, Any]:
    """Adapt to every batch in turn, count correct predictions, and return fields of `EvaluationRecord`.

    Args:
        adaptor: The adaptor; it is reset where a segment says so, and at the end.
        segments: The batches.
        images: Loads them.
        classes: Number of classes.
        progress: Called after each batch with the number of images done and in total.
        known: Logits of the source model from earlier calls with the same network and images; new ones are added.
    """
    adaptor.watch.compares = False  # all batches are compared here
    run = _Run(adaptor, images, classes, {} if known is None else known, PeakMemory(images.device))
    run.lines = [{"name": s.name, "fresh": s.fresh, "images": 0, "right": 0, "source_right": 0} for s in segments]
    total = sum(len(batch) for segment in segments for batch in segment.batches)
    current = -1
    for number, items, pixels in images.batches(segments):
        if number != current and segments[number].fresh:
            adaptor.reset()
        current = number
        if items:
            run.batch(run.lines[number], items, pixels)
            progress(run.images_done, total)
    adaptor.reset()
    return run.result()


@dataclass
class _Run:
    """Accumulates the results of an evaluation."""

    adaptor: Adaptor
    loader: SegmentLoader
    classes: int
    known: SourceLogits
    memory: PeakMemory
    lines: list[dict[str, Any]] = field(default_factory=list)  # one per segment
    tallies: dict[str, Tally] = field(default_factory=dict)
    alpha: dict[str, list[float]] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    harm: Comparison = field(default_factory=Comparison)
    images_done: int = 0
    fell_back: int = 0
    adapting: list[float] = field(default_factory=list)  # seconds of each batch
    compared: list[tuple[float, float]] = field(default_factory=list)  # seconds if the source model was timed too

    def batch(self, line: dict[str, Any], items: list[ImageRef], pixels: Tensor) -> None:
        device, key = self.loader.device, tuple(items)
        batch = pixels.to(device, memory_format=torch.channels_last)
        source_took = None
        if len(self.adapting) < _TIMED or key not in self.known:
            source, source_took = timed(lambda: _source(self.adaptor, batch), device)
            self.known[key] = source.float().cpu()
        with self.memory.measured():
            result, took = timed(lambda: self.adaptor.adapt(batch), device)
        self.adapting.append(took)
        if source_took is not None:
            self.compared.append((took, source_took))
        self._count(line, items, self.known[key], result.before.float().cpu(), result.logits.float().cpu())
        for layer, value in result.alpha.items():
            self.alpha.setdefault(layer, []).append(value)
        self.harm.add(self.known[key], result)
        if result.note and not result.warnings:
            self.notes[result.note] = None
        self.fell_back += result.fell_back
        self.images_done += len(items)

    def _count(self, line: dict[str, Any], items: list[ImageRef], *logits: Tensor) -> None:
        """Add logits of the source model, before the step, and after it to the domains and the segment."""
        for domain in dict.fromkeys(item.domain for item in items):
            at = [place for place, item in enumerate(items) if item.domain == domain]
            own = [items[place] for place in at]
            tally = self.tallies.setdefault(domain, Tally(self.classes))
            tally.add(own, [self.loader.name(item) for item in own], *(values[at] for values in logits))
        labels = torch.tensor([item.label for item in items])
        line["images"] += len(items)
        line["right"] += int((logits[2].argmax(1) == labels).sum())
        line["source_right"] += int((logits[0].argmax(1) == labels).sum())

    def result(self) -> dict[str, Any]:
        adapting, source = (round(sum(pair[at] for pair in self.compared), 4) for at in range(2))
        return {
            "scores": {domain: tally.score() for domain, tally in self.tallies.items()},
            "segments": self.lines,
            "alpha": {layer: round(sum(values) / len(values), 6) for layer, values in self.alpha.items()},
            "seconds": {
                "batches": len(self.adapting),
                "images": self.images_done,
                "adapting": round(sum(self.adapting), 4),
                "compared": {"batches": len(self.compared), "adapting": adapting, "plain": source},
            },
            "memory": self.memory.megabytes(),
            "fell_back": self.fell_back,
            "notes": list(self.notes),
            "warnings": self.harm.texts(self.adaptor),
        }


def _source(adaptor: Adaptor, batch: Tensor) -> Tensor:
    """Return the logits of the source model without the adaptor's checks, as the baseline for times."""
    with torch.no_grad():
        return read_logits(adaptor.source(batch.clone()), adaptor.output, len(batch))
