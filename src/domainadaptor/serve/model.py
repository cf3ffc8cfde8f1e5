"""The network of a worker, with one adaptor for plain requests and one for each stream."""

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import domainadaptor
from domainadaptor import Adaptation, Adaptor
from domainadaptor.adaptation.calibrate import FEW, FEWEST, Calibration
from domainadaptor.catalog import method_info, method_options
from domainadaptor.errors import AdaptationError, BadOption
from domainadaptor.lab.method_inputs import options_from
from domainadaptor.lab.networks.inputs import InputOptions, read_classes
from domainadaptor.lab.networks.loading import load_network
from domainadaptor.serve.schemas import LayerStatistics, NewModel
from domainadaptor.serve.settings import ServeSettings

_STREAM_METHOD = "tent"  # where the method of plain requests keeps nothing between batches
_RESET_STREAMS_EVERY = 1000  # batches, where the method has no interval of its own


class Answer(NamedTuple):
    """Both predictions of a batch, and the seconds that each took."""

    source: Tensor
    result: Adaptation
    seconds: dict[str, float]


class ServedModel:
    """A loaded network that predicts batches; a batch changes nothing unless it belongs to a stream."""

    def __init__(self, settings: ServeSettings) -> None:
        names = () if settings.classes is None else tuple(read_classes(Path(settings.classes)))
        root = None if settings.root is None else Path(settings.root)
        loaded = load_network(settings.network, settings.weights, InputOptions(size=settings.size, classes=names), root)
        if loaded.random:
            raise BadOption(f"No weights given for {settings.network!r}. Pass --weights FILE, or a checkpoint instead")
        self._heads, self._preprocessing, self._notes = loaded.heads, loaded.preprocessing, loaded.notes
        self.device = torch.device(settings.device)
        self._network = loaded.network.to(self.device)
        self.name = re.sub(r"[^\w.-]", "-", loaded.name.rpartition(":")[2])
        self.classes, self.size = loaded.classes, loaded.preprocessing.size
        self.transform = loaded.preprocessing.transform()
        self.method, self._typed = settings.method, settings.options
        self.stream_method = settings.stream_method or (self.method if _is_online(self.method) else _STREAM_METHOD)
        self._plain = self._adaptor(self.method, **({"reset_every": 1} if _is_online(self.method) else {}))
        if self._plain.reset_every != 1:
            raise BadOption(f"{self.method} keeps what it learns and has no option reset_every, so it cannot be served")
        self._new_stream()  # what is wrong with it is reported now
        self._streams: dict[str, Adaptor] = {}
        self._calibrated: dict[str, Adaptor] = {}
        self._probe = torch.randn(4, 3, self.size, self.size, generator=torch.Generator().manual_seed(0))
        self._expected = self._plain(self._probe.to(self.device))

    def describe(self) -> dict[str, Any]:
        """Return what the front process tells clients."""
        return {
            "name": self.name,
            "size": self.size,
            "classes": list(self.classes),
            "method": self.method,
            "stream_method": self.stream_method,
            "notes": list(self._notes),
        }

    def predict(self, images: Tensor, stream: str | None, calibrated: str | None = None) -> Answer:
        """Predict a batch, with the source model and after adaptation; or with a calibrated model in place of that."""
        if stream is not None and stream not in self._streams:
            self._streams[stream] = self._new_stream()
        adaptor = self._plain if stream is None else self._streams[stream]
        of_source = adaptor
        if calibrated is not None:
            of_source, adaptor = self._plain, self._calibrated[calibrated]
        images = images.to(self.device)
        start = time.perf_counter()
        source = of_source.source_logits(images).cpu()
        middle = time.perf_counter()
        result = adaptor.adapt(images)
        result = replace(result, logits=result.logits.detach().cpu())
        return Answer(source, result, {"source": middle - start, "adapt": time.perf_counter() - middle})

    def calibrate(self, images: Tensor, share: float | None, name: str) -> NewModel:
        """Keep a network that is calibrated on a batch, under a name."""
        calibration = Calibration(self._network, share=share)
        calibration.add(images.to(self.device))
        plain = calibration.network()
        for parameter, ours in zip(plain.parameters(), self._network.parameters(), strict=True):
            parameter.data = ours.data  # only the statistics take memory
        self._calibrated[name] = domainadaptor.adapt(plain, "source")
        layers = {layer.name: LayerStatistics(shift=layer.shift, share=layer.share) for layer in calibration.layers()}
        note = FEW.format(images=len(images)) if len(images) < FEWEST else None
        return NewModel(name=name, images=len(images), layers=layers, note=note)

    def forget(self, name: str) -> None:
        """Drop a calibrated model, or what a stream learned; that starts over from the source model if used again."""
        self._streams.pop(name, None)
        self._calibrated.pop(name, None)

    def check(self) -> None:
        """Raise AdaptationError if the network no longer predicts what it did at the start."""
        if not torch.equal(self._plain(self._probe.to(self.device)), self._expected):
            raise AdaptationError("the network no longer predicts what it predicted at the start")

    def _new_stream(self) -> Adaptor:
        if not _is_online(self.stream_method):
            raise BadOption(f"{self.stream_method} keeps nothing between batches, so it cannot serve streams")
        every = method_info(self.stream_method, allow_import=True).defaults["reset_every"]
        return self._adaptor(self.stream_method, reset_every=every or _RESET_STREAMS_EVERY, guard=True)

    def _adaptor(self, method: str, **service: Any) -> Adaptor:
        typed = method_options(method, self._typed if method == self.method else {}, text=True, allow_import=True)
        known = options_from(method, heads=self._heads, preprocessing=self._preprocessing, seed=0)
        return domainadaptor.adapt(self._network, method, **{**known, **typed, **service})


def _is_online(method: str) -> bool:
    return "reset_every" in method_info(method, allow_import=True).defaults
