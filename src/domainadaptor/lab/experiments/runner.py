"""Runs experiments: opens data sets and networks once for many runs, and measures."""

import hashlib
import json
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import domainadaptor
from domainadaptor.errors import AdaptationError, BadFile, BadOption
from domainadaptor.lab.data.domains import DomainDataset, Split
from domainadaptor.lab.data.image_cache import DomainImages, Progress
from domainadaptor.lab.data.preprocessing import Preprocessing
from domainadaptor.lab.data.registry import open_dataset
from domainadaptor.lab.evaluation.evaluate import Counted, PlainLogits, SegmentLoader, evaluate
from domainadaptor.lab.evaluation.protocols import ImageRef, Segment, arrange, protocol_options, shuffled
from domainadaptor.lab.experiments.analyses import MeasurementInputs, find_measurement
from domainadaptor.lab.experiments.networks import LocatedNetwork, training_command
from domainadaptor.lab.experiments.run_spec import RunSpec
from domainadaptor.lab.files import digest_of
from domainadaptor.lab.method_inputs import options_from
from domainadaptor.lab.networks.loading import LoadedNetwork, load_network
from domainadaptor.lab.records.plans import Manifest
from domainadaptor.lab.records.runs import CheckpointInfo, RunSettings
from domainadaptor.lab.records.store import AnyRun, Store, build
from domainadaptor.lab.records.training import RECORD_FILE, TrainingRecord, read_training
from domainadaptor.lab.revision import revision
from domainadaptor.options import defaults_of

_PACKAGES = ("torchvision", "timm", "pillow", "numpy")  # that decode, resize, or build networks
_SOURCE_IMAGES = 2000  # that a method may see, as in the EATA paper


@dataclass
class Runner:
    """Keeps data sets, images and the last network open for the next run."""

    root: Path | None
    images: Path | None  # cache of decoded images; None decodes them each time
    device: torch.device
    preparing: Progress = lambda *_: None
    _datasets: dict[str, DomainDataset] = field(default_factory=dict)
    _fingerprints: dict[str, str] = field(default_factory=dict)
    _images: dict[tuple[str, str, Preprocessing], DomainImages] = field(default_factory=dict)
    _checkpoints: dict[str, CheckpointInfo] = field(default_factory=dict)
    _origins: dict[str, tuple[str, str]] = field(default_factory=dict)  # network -> its data set and fingerprint
    _network: tuple[str, LoadedNetwork] | None = None
    _plain: tuple[Any, PlainLogits] = (None, {})  # logits of the source model on the last stream

    def dataset(self, name: str, options: Mapping[str, Any] | None = None) -> DomainDataset:
        """Return a data set, opened once."""
        key = _key(name, options or {})
        if key not in self._datasets:
            self._datasets[key] = open_dataset(name, self.root, **dict(options or {}))
        return self._datasets[key]

    def fingerprint(self, name: str, options: Mapping[str, Any]) -> str:
        """Return the fingerprint of a data set, computed once."""
        key = _key(name, options)
        if key not in self._fingerprints:
            self._fingerprints[key] = self.dataset(name, options).fingerprint()
        return self._fingerprints[key]

    def write_provenance(self, spec: RunSpec, store: Store) -> None:
        """Write the manifest of the data set, and the training record of the network, unless they are there."""
        if not store.has("manifest", self.fingerprint(spec.dataset, spec.data_options)):
            content = self.dataset(spec.dataset, spec.data_options).manifest()
            store.write(Manifest.model_validate_json(json.dumps(content)))
        trained = _training_record(spec.network)
        if trained is not None and not store.has("training", trained.id):
            store.write(trained)

    def settings(self, spec: RunSpec) -> RunSettings:
        """Return the settings of a run as its record has them.

        Raises:
            AdaptationError: Data or network are not available.
        """
        known = self._checkpoint(spec.network).model_copy(update={"seed": spec.seed})
        return spec.settings(self.fingerprint(spec.dataset, spec.data_options), known, self._seen(spec))

    def run(self, spec: RunSpec, progress: Counted = lambda *_: None) -> AnyRun:
        """Do a run and return its record.

        Raises:
            AdaptationError: Something that it needs is missing, or does not fit.
        """
        settings = self.settings(spec)
        begun = time.perf_counter()
        measured = self._measure(spec) if spec.measure else self._evaluate(spec, progress)
        return build(
            {
                **self._head(spec, settings),
                **measured,
                "preprocessing": asdict(self.open(spec.network).preprocessing),
                "defaults": defaults(spec),
                "took": round(time.perf_counter() - begun, 2),
            }
        )

    def failed(self, spec: RunSpec, reason: str) -> AnyRun:
        """Return the record of a run that failed."""
        return build(self._head(spec, self.settings(spec)) | {"failed": reason})

    def _head(self, spec: RunSpec, settings: RunSettings) -> dict[str, Any]:
        return {
            "kind": "measurement" if spec.measure else "evaluation",
            "run": settings.model_dump(mode="json"),
            "command": spec.command(),
            "environment": environment(self.device),
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }

    def _evaluate(self, spec: RunSpec, progress: Counted) -> dict[str, Any]:
        dataset = self.dataset(spec.dataset, spec.data_options)
        opened = self._open_for(spec)
        cautions = [*_check_classes(opened, dataset), *self._source_cautions(spec)]
        test, segments = self.stream(spec, opened)
        options = self._options(spec, opened, test, segments)
        adaptor = domainadaptor.adapt(opened.network, spec.method, **options)
        found = evaluate(
            adaptor, segments, test, len(dataset.classes), progress=progress, known=self._plain_logits(spec)
        )
        used = {
            (item.domain, dataset.domain(item.domain).examples[item.position].name)
            for segment in segments
            for batch in segment.batches
            for item in batch
        }
        skipped = {
            f"{domain}/{name}": why
            for domain, held in test.pictures.items()
            for name, why in held.skipped.items()
            if (domain, name) in used
        }
        images = {domain: score["images"] for domain, score in found["scores"].items()}
        if not images:
            raise BadFile(f"None of the images of {', '.join(spec.domains)} can be read: {skipped}")
        notes = [*opened.notes, *cautions, *found.pop("notes")]
        return {
            "images": images,
            "skipped": skipped,
            "classes": dataset.classes,
            **found,
            "notes": notes,
            "cautions": cautions,
        }

    def _measure(self, spec: RunSpec) -> dict[str, Any]:
        measurement = find_measurement(spec.measure)
        opened = self._open_for(spec)
        test, segments = self.stream(spec, opened)
        dataset = self.dataset(spec.dataset, spec.data_options)
        inputs = MeasurementInputs(opened, dataset, test, segments, spec.network.path)
        values = measurement(inputs, **spec.options)
        return {"values": values.model_dump(mode="json", by_alias=True), "notes": opened.notes}

    def stream(self, spec: RunSpec, opened: LoadedNetwork) -> tuple[SegmentLoader, list[Segment]]:
        """Return the images of a run and their order."""
        dataset = self.dataset(spec.dataset, spec.data_options)
        images, items = {}, {}
        seen = self._seen(spec)
        for domain in spec.domains:
            images[domain] = self._images_of(spec, domain, opened.preprocessing)
            part: Split = "val" if domain in seen else "test"
            items[domain] = shuffled(_items(dataset, domain, part), spec.order, spec.images)
        segments = arrange(spec.protocol, items, spec.batch_size, spec.order, spec.protocol_options)
        return SegmentLoader(images, opened.preprocessing, self.device), segments

    def _plain_logits(self, spec: RunSpec) -> PlainLogits:
        stream = replace(spec, method="", options={}, seed=0, sources=())
        if self._plain[0] != stream:
            self._plain = stream, {}
        return self._plain[1]

    def _options(
        self, spec: RunSpec, opened: LoadedNetwork, test: SegmentLoader, segments: Sequence[Segment]
    ) -> dict[str, Any]:
        """Return the options of the run, and what its method needs and the run can provide."""
        own = options_from(
            spec.method,
            heads=opened.heads,
            preprocessing=opened.preprocessing,
            source_images=self._source_images(spec, opened),
            target_images=_Batches(test, segments),
            seed=spec.seed,
        )
        return {**own, **spec.options}

    def _source_images(self, spec: RunSpec, opened: LoadedNetwork) -> "_Batches | None":
        """Return some of the images that the network was trained on."""
        dataset = self.dataset(spec.dataset, spec.data_options)
        sources = spec.sources or self.sources_of(spec.network, spec.dataset, spec.data_options)
        if not sources:
            return None
        items: list[ImageRef] = []
        for source in sources:
            items += _items(dataset, source, "train") or _items(dataset, source, "test")
        order = np.random.default_rng(spec.order).permutation(len(items))[:_SOURCE_IMAGES]
        chosen = tuple(items[at] for at in order)
        images = {source: self._images_of(spec, source, opened.preprocessing) for source in sources}
        batches = tuple(chosen[start : start + 64] for start in range(0, len(chosen), 64))
        return _Batches(SegmentLoader(images, opened.preprocessing, self.device), [Segment("sources", batches, True)])

    def _images_of(self, spec: RunSpec, domain: str, preprocessing: Preprocessing) -> DomainImages:
        key = (_key(spec.dataset, spec.data_options), domain, preprocessing)
        if key not in self._images:
            images = DomainImages(self.dataset(spec.dataset, spec.data_options).domain(domain), preprocessing)
            if self.images is not None:
                images.cache(self.images, self.preparing)
            self._images[key] = images
        return self._images[key]

    def open(self, network: LocatedNetwork) -> LoadedNetwork:
        """Return the network with its preprocessing, classes and heads."""
        key = _network_key(network)
        if self._network is None or self._network[0] != key:
            argument = str(network.path) if network.path is not None else network.argument
            opened = load_network(argument, network.weights, network.raw.classes, self.root).with_options(network.raw)
            known = self._checkpoints.get(key)
            if network.path is not None and known is not None and digest_of(network.path) != known.sha256:
                raise BadFile(
                    f"{str(network.path)!r} was replaced during the run; repeat the command to use the new file"
                )
            opened.network.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
            self._network = key, opened
        return self._network[1]

    def _open_for(self, spec: RunSpec) -> LoadedNetwork:
        """Return the network of a run, with its outputs in the order of the data set's classes if they have names."""
        opened = self.open(spec.network)
        if spec.network.raw.classes:
            opened = opened.with_class_order(self.dataset(spec.dataset, spec.data_options).classes)
            self._network = _network_key(spec.network), opened
        return opened

    def sources_of(self, network: LocatedNetwork, dataset: str, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the domains of a data set that a network was trained on: same name, or same images."""
        known = self._checkpoint(network)
        name, images = self._origins[_network_key(network)]
        if self.dataset(dataset, options).name == name or (images and self.fingerprint(dataset, options) == images):
            return tuple(source for source in known.sources if source in self.dataset(dataset, options).domains)
        return ()

    def _seen(self, spec: RunSpec) -> list[str]:
        sources = self.sources_of(spec.network, spec.dataset, spec.data_options)
        return [domain for domain in spec.domains if domain in sources]

    def _source_cautions(self, spec: RunSpec) -> list[str]:
        """Return warnings about domains that the network was, or may have been, trained on."""
        seen = self._seen(spec)
        name, _ = self._origins[_network_key(spec.network)]
        return [f"{domain} is a source of this network: its validation images were used" for domain in seen] + [
            f"{domain} is also the name of a source domain of this network, in {name!r}: if the images are the same, "
            "this is not a test"
            for domain in spec.domains
            if domain in self._checkpoint(spec.network).sources and domain not in seen
        ]

    def _checkpoint(self, network: LocatedNetwork) -> CheckpointInfo:
        key = _network_key(network)
        if key not in self._checkpoints:
            self._checkpoints[key] = self._inspect(network)
        return self._checkpoints[key].model_copy(update={"name": network.label})

    def _inspect(self, network: LocatedNetwork) -> CheckpointInfo:
        info = CheckpointInfo(name=network.label, sha256="", seed=0, training=network.training, command=network.command)
        try:
            opened = self.open(network)
        except AdaptationError:
            if network.path is None or not network.path.is_file():
                raise
            # A file that cannot be opened still has a digest: its runs have ids, fail, and are recorded as failed.
            self._origins[_network_key(network)] = "", ""
            return info.model_copy(update={"sha256": digest_of(network.path)})
        self._origins[_network_key(network)] = opened.dataset, str(opened.recipe.get("data", ""))
        trained = _training_record(network)
        command = network.command or (trained.command if trained else "") or training_command(opened.recipe)
        return info.model_copy(
            update={
                "sha256": digest_of(network.path) if network.path is not None else _weights_digest(opened.network),
                "command": command,
                "network": opened.name,
                "size": opened.preprocessing.size,
                "sources": tuple(opened.sources),
                "note": "; ".join(opened.notes),
            }
        )


@dataclass(frozen=True)
class _Batches:
    """Images without labels, in batches, that can be iterated repeatedly."""

    test: SegmentLoader
    segments: Sequence[Segment]

    def __iter__(self) -> Iterator[Tensor]:
        for _, items, pixels in self.test.batches(self.segments):
            if items:
                yield pixels.to(self.test.device)


def _training_record(network: LocatedNetwork) -> TrainingRecord | None:
    """Return the training record next to a checkpoint, if there is one."""
    try:
        return None if network.path is None else read_training(network.path.parent / RECORD_FILE)
    except ValueError:
        return None


def _network_key(network: LocatedNetwork) -> str:
    return f"{network.argument} {network.weights} {network.raw}"


def _key(name: str, options: Mapping[str, Any]) -> str:
    """Return a key of a data set: other options may give other images under the same name."""
    return json.dumps([name, dict(options)], sort_keys=True)


def defaults(spec: RunSpec) -> dict[str, Any]:
    """Return the values of the options that a run leaves to its method or measurement and its protocol."""
    known = (
        defaults_of(find_measurement(spec.measure)) if spec.measure else domainadaptor.method_info(spec.method).defaults
    )
    left = {name: value for name, value in known.items() if name not in spec.options}
    for name, value in protocol_options(spec.protocol).items() if not spec.measure else ():
        left |= {f"{spec.protocol} {name}": value} if name not in spec.protocol_options else {}
    return json.loads(json.dumps(left, default=repr))  # type: ignore[no-any-return]


def environment(device: torch.device) -> dict[str, Any]:
    """Return versions and machine, for a record."""
    return {
        "domainadaptor": domainadaptor.__version__,
        "commit": revision(),
        "torch": torch.__version__,
        **{name: version(name) for name in _PACKAGES},
        "python": platform.python_version(),
        "device": str(device),
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "processor": _processor(),
    }


def _processor() -> str:
    """Return the name of the processor, if the system provides it."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines() if cpuinfo.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _items(dataset: DomainDataset, domain: str, part: Split) -> list[ImageRef]:
    found = dataset.domain(domain)
    wanted = {example.name for example in found.select(part)}
    return [ImageRef(domain, at, example.label) for at, example in enumerate(found.examples) if example.name in wanted]


def _check_classes(opened: LoadedNetwork, dataset: DomainDataset) -> list[str]:
    """Refuse a network for other classes; return a warning if its outputs have no names."""
    own, wanted = tuple(opened.classes), tuple(dataset.classes)
    if own == wanted:
        return []
    if own == tuple(map(str, range(len(wanted)))):
        return [f"the outputs of {opened.name} have no names: taken as {_some(wanted)}, in this order"]
    raise BadOption(
        f"{opened.name} has {len(own)} classes ({_some(own)}), {dataset.name} has {len(wanted)} ({_some(wanted)}): "
        "expected the same in the same order. Name the class folders like the network's classes, or train a network "
        "on these"
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (" …" if len(names) > 8 else "")


def _weights_digest(network: nn.Module) -> str:
    """Return the SHA-256 of all weights, for a network that is not a checkpoint file."""
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(name.encode() + tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
