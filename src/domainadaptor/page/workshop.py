"""The work of the page: predict images before and after adaptation, and judge the difference."""

import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms.functional import to_tensor

from domainadaptor import Adaptor, adapt
from domainadaptor.adaptation.calibrate import Calibration
from domainadaptor.adaptation.estimate import Answers, expect
from domainadaptor.catalog import DEFAULT_METHOD
from domainadaptor.errors import BadFile, BadOption
from domainadaptor.lab.data.domains import Reader
from domainadaptor.lab.data.images import as_url
from domainadaptor.lab.measure import timed
from domainadaptor.lab.method_inputs import options_from
from domainadaptor.lab.networks.calibrated import calibrated_checkpoint
from domainadaptor.lab.networks.checkpoint import save_checkpoint
from domainadaptor.lab.networks.loading import LoadedNetwork
from domainadaptor.lab.prediction import FilePrediction, best_classes, shuffled_batches
from domainadaptor.page.networks import NetworkFinder, Progress
from domainadaptor.page.order import PicturesOrder, RunOrder
from domainadaptor.page.pictures import ImageStore, Pictures, own_pictures, sample_pictures
from domainadaptor.page.verdict import AnswerPair, judge

_PREVIEWED = 6

Report = Callable[[dict[str, Any]], None]  # sends something to the browser; raises to cancel


@dataclass
class _Run:
    """A run, and what it found so far."""

    order: RunOrder
    loaded: LoadedNetwork
    adaptor: Adaptor
    device: torch.device
    read: Reader
    batches: list[list[str]] = field(default_factory=list)  # names of the images that were adapted together
    pairs: list[AnswerPair] = field(default_factory=list)
    answers: Answers = field(default_factory=Answers)
    sure: list[tuple[float, float]] = field(default_factory=list)
    seconds: list[tuple[float, float]] = field(default_factory=list)
    alpha: dict[str, list[float]] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)

    def batch(self, images: list[Image.Image]) -> Tensor:
        """Return images as the network's input."""
        pixels = torch.stack([to_tensor(image) for image in images])
        return self.loaded.preprocessing.normalized(pixels).to(self.device)

    def predict(self, images: list[Image.Image], names: list[str], labels: list[str]) -> list[dict[str, Any]]:
        """Predict some images as one batch and return their rows."""
        batch = self.batch(images)
        if not self.batches:
            for first in (self.adaptor.source_logits, self.adaptor.peek):
                first(batch[:2])  # what only a first pass does is not timed
        self.batches.append(names)
        source, plain = timed(lambda: self.adaptor.source_logits(batch), self.device)
        result, took = timed(lambda: self.adaptor.adapt(batch), self.device)
        self.seconds.append((plain, took))
        for layer, value in result.alpha.items():
            self.alpha.setdefault(layer, []).append(value)
        self.answers.add(source, result.logits)
        if result.note:
            self.notes[result.note] = None
        before, after = (best_classes(logits, self.loaded.classes) for logits in (source, result.logits))
        self.pairs += [AnswerPair(was[0], now[0], label) for was, now, label in zip(before, after, labels, strict=True)]
        self.sure += [(was[1], now[1]) for was, now in zip(before, after, strict=True)]
        rows = map(FilePrediction, names, *zip(*before, strict=True), *zip(*after, strict=True))
        return [
            {**asdict(row), "label": label, "picture": as_url(image)}
            for row, label, image in zip(rows, labels, images, strict=True)
        ]

    def summary(self) -> dict[str, Any]:
        """Return the verdict and the numbers of the whole run."""
        labeled = [pair for pair in self.pairs if pair.label]
        expected = expect(self.answers.signals()) if self.order.method == DEFAULT_METHOD else None
        return {
            "verdict": asdict(judge(self.pairs, min(len(self.pairs), self.order.batch_size), self.notes, expected)),
            "images": len(self.pairs),
            "changed": sum(pair.source != pair.adapted for pair in self.pairs),
            "labeled": len(labeled),
            "right": [sum(p.label == p.source for p in labeled), sum(p.label == p.adapted for p in labeled)],
            "sure": [fmean(sure) for sure in zip(*self.sure, strict=True)],
            "seconds": [sum(seconds) for seconds in zip(*self.seconds, strict=True)],
            "alpha": {layer: fmean(values) for layer, values in self.alpha.items()},
            "notes": [*self.loaded.notes, f"Preprocessing: {self.loaded.preprocessing_sentence()}"],
        }


class Workshop:
    """Does the work of the page, one piece at a time."""

    def __init__(self, networks: NetworkFinder, device: torch.device) -> None:
        self.networks, self.store = networks, ImageStore()
        self._device = device
        self._last: _Run | None = None
        self._runs = 0

    def preview(self, order: PicturesOrder, report: Report) -> None:
        """Report a few of the images as the network gets them, and how many have a known class."""
        report({"stage": "network"})  # the browser shows an error there
        preprocessing, classes = self.networks.describe(order.network, _progress(report))
        report({"stage": "images"})
        pictures = self._pictures(order)
        read, shown = pictures.fitted(preprocessing, order.corruption, order.severity), []
        for name in pictures.names[:: -(-len(pictures.names) // _PREVIEWED)]:
            with suppress(BadFile):  # a run says why
                shown.append(as_url(read(name)))
        report({"pictures": shown, "labeled": sum(map(bool, pictures.labels(classes)))})

    def run(self, order: RunOrder, report: Report) -> None:
        """Report both answers of each image, batch by batch, and then the verdict."""
        self._last = None
        report({"stage": "network"})
        loaded = self.networks.find(order.network, _progress(report))
        report({"stage": "images"})
        pictures = self._pictures(order)
        read = pictures.fitted(loaded.preprocessing, order.corruption, order.severity)
        names, labels, done = pictures.names, pictures.labels(loaded.classes), 0
        report({"stage": "method"})
        known = options_from(order.method, heads=loaded.heads, preprocessing=loaded.preprocessing, seed=0)
        run = _Run(order, loaded, adapt(loaded.network.to(self._device), order.method, **known), self._device, read)
        for chosen in shuffled_batches(range(len(names)), order.batch_size, seed=0):
            images, rows = {}, []
            for at in chosen:
                done += 1
                try:
                    images[at] = read(names[at])
                except BadFile as error:
                    rows.append(asdict(FilePrediction(names[at], skipped=str(error))))
                report({"what": "Reading and adapting", "done": done, "total": len(names)})
            if images:
                chosen = list(images)
                rows += run.predict(list(images.values()), [names[at] for at in chosen], [labels[at] for at in chosen])
            report({"rows": rows})
        if not run.pairs:
            raise BadFile("None of these images can be read")
        self._last, self._runs = run, self._runs + 1
        report({**run.summary(), "run": self._runs})

    def checkpoint(self, number: str) -> bytes:
        """Return a checkpoint of the network, calibrated on the images of the last run."""
        if (run := self._last) is None or number != str(self._runs):
            raise BadOption("Another run came after this result. Run it again for its checkpoint")
        calibration = Calibration(run.loaded.network)
        for names in run.batches:
            calibration.add(run.batch([run.read(name) for name in names]))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "calibrated.safetensors"
            save_checkpoint(path, calibrated_checkpoint(run.loaded, calibration, folder=run.order.subject()))
            return path.read_bytes()

    def _pictures(self, order: PicturesOrder) -> Pictures:
        if order.style is not None:
            return sample_pictures(order.style)
        if not order.images:
            raise BadOption("Choose a folder or some images first")
        return own_pictures(self.store.find(order.images))


def _progress(report: Report) -> Progress:
    return lambda what, done, total: report({"what": what, "done": done, "total": total})
