"""Runs an adaptor through the segments of a protocol; labels stop here."""

import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from domainadaptor.adaptation.adaptor import Adaptor
from domainadaptor.adaptation.logits import read_logits
from domainadaptor.lab.data.image_cache import DomainImages
from domainadaptor.lab.data.prefetch import prefetch
from domainadaptor.lab.data.preprocessing import Preprocessing
from domainadaptor.lab.evaluation.protocols import ImageRef, Segment
from domainadaptor.lab.evaluation.scores import Tally
from domainadaptor.lab.peak_memory import PeakMemory

Counted = Callable[[int, int], None]  # done, of how many
PlainLogits = MutableMapping[tuple[ImageRef, ...], Tensor]  # of the untouched network, by batch
_TIMED = 8  # batches on which plain inference is timed, even if its logits are known


@dataclass(frozen=True)
class SegmentLoader:
    """Where the images of a protocol come from."""

    pictures: Mapping[str, DomainImages]  # domain -> its images
    preprocessing: Preprocessing
    device: torch.device

    def batches(self, segments: Sequence[Segment]) -> Iterator[tuple[int, list[ImageRef], Tensor]]:
        """The number of the segment, the images that could be read, and their pixels; made while the last are used."""
        return prefetch(self._load(at, batch) for at, segment in enumerate(segments) for batch in segment.batches)

    def _load(self, at: int, batch: Sequence[ImageRef]) -> tuple[int, list[ImageRef], Tensor]:
        """A batch whose images may be of several domains, in the order of the batch."""
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
        """What the image is called in its domain."""
        return self.pictures[item.domain].domain.examples[item.position].name


def evaluate(
    adaptor: Adaptor,
    segments: Sequence[Segment],
    images: SegmentLoader,
    classes: int,
    progress: Counted = lambda *_: None,
    known: PlainLogits | None = None,
) -> dict[str, Any]:
    """Adapts to every batch in turn and counts what came of it.

    Args:
        adaptor: What predicts; it is reset where a segment says so, and in the end.
        segments: The batches.
        images: Where they come from.
        classes: How many.
        progress: Called after each batch with how many images are done, of how many.
        known: What the untouched network says of batches: from earlier calls with the same network and images, and
            added to, so that later ones need not ask it again.

    Returns:
        Scores by domain, segments, alpha by layer, seconds, memory, notes: the measured part of a record.
    """
    tallies: dict[str, Tally] = {}
    lines: list[dict[str, Any]] = [
        {"name": s.name, "fresh": s.fresh, "images": 0, "right": 0, "source_right": 0} for s in segments
    ]
    alpha: dict[str, list[float]] = {}
    notes: list[str] = []
    known = {} if known is None else known
    adapting = 0.0
    compared = {"batches": 0, "adapting": 0.0, "plain": 0.0}  # where both were timed side by side
    batches = done = fell_back = 0
    total = sum(len(batch) for segment in segments for batch in segment.batches)
    current = -1
    memory = PeakMemory(images.device)
    for number, items, pixels in images.batches(segments):
        if number != current and segments[number].fresh:
            adaptor.reset()
        current = number
        if not items:
            continue
        batch = pixels.to(images.device, memory_format=torch.channels_last)
        key = tuple(items)
        plain_took = None
        if batches < _TIMED or key not in known:
            plain, plain_took = _timed(lambda batch=batch: _plain(adaptor, batch), images.device)  # type: ignore[misc]
            known[key] = plain.float().cpu()
        with memory:
            result, took = _timed(lambda batch=batch: adaptor.adapt(batch), images.device)  # type: ignore[misc]
        adapting += took
        if plain_took is not None:
            added = {"batches": 1, "adapting": took, "plain": plain_took}
            compared = {name: value + added[name] for name, value in compared.items()}
        logits = [known[key], *(values.float().cpu() for values in (result.before, result.logits))]
        for domain in dict.fromkeys(item.domain for item in items):
            at = [place for place, item in enumerate(items) if item.domain == domain]
            own = [items[place] for place in at]
            tally = tallies.setdefault(domain, Tally(classes))
            tally.add(own, [images.name(item) for item in own], *(values[at] for values in logits))
        labels = torch.tensor([item.label for item in items])
        line = lines[number]
        line["images"] += len(items)
        line["right"] += int((logits[2].argmax(1) == labels).sum())
        line["source_right"] += int((logits[0].argmax(1) == labels).sum())
        for layer, value in result.alpha.items():
            alpha.setdefault(layer, []).append(value)
        if result.note and result.note not in notes:
            notes.append(result.note)
        fell_back += result.fell_back
        batches += 1
        done += len(items)
        progress(done, total)
    adaptor.reset()
    return {
        "scores": {domain: tally.score() for domain, tally in tallies.items()},
        "segments": lines,
        "alpha": {layer: round(sum(values) / len(values), 6) for layer, values in alpha.items()},
        "seconds": {
            "batches": batches,
            "images": done,
            "adapting": round(adapting, 4),
            "compared": {name: round(value, 4) for name, value in compared.items()},
        },
        "memory": memory.megabytes(),
        "fell_back": fell_back,
        "notes": notes,
    }


def _plain(adaptor: Adaptor, batch: Tensor) -> Tensor:
    """The network itself, without the checks that an adaptor makes: what adaptation is compared with."""
    with torch.no_grad():
        return read_logits(adaptor.source(batch.clone()), adaptor.output, len(batch))


def _timed(work: Callable[[], Any], device: torch.device) -> tuple[Any, float]:
    _finish(device)
    begun = time.perf_counter()
    result = work()
    _finish(device)
    return result, time.perf_counter() - begun


def _finish(device: torch.device) -> None:
    """A GPU works on after the call returned."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
