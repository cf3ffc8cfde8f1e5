"""Runs experiments: opens data sets and networks once for many runs, and measures."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

import domainadaptor
from domainadaptor.errors import AdaptationError, BadFile
from domainadaptor.lab.data.domains import DomainDataset, Split
from domainadaptor.lab.data.image_cache import DomainImages
from domainadaptor.lab.data.locate import some
from domainadaptor.lab.data.preprocessing import Preprocessing
from domainadaptor.lab.data.registry import open_dataset
from domainadaptor.lab.environment import environment
from domainadaptor.lab.evaluation.protocols import ImageRef, Segment, arrange, protocol_options, shuffled
from domainadaptor.lab.evaluation.stream import Counted, SegmentLoader, SourceLogits, evaluate_stream
from domainadaptor.lab.experiments.analyses import MeasurementInputs, find_measurement
from domainadaptor.lab.experiments.networks import LocatedNetwork
from domainadaptor.lab.experiments.run_spec import RunSpec
from domainadaptor.lab.files import digest_of
from domainadaptor.lab.method_inputs import options_from
from domainadaptor.lab.networks.loading import LoadedNetwork, load_network
from domainadaptor.lab.networks.weights import digest_of_weights
from domainadaptor.lab.records.plans import Manifest
from domainadaptor.lab.records.runs import CheckpointInfo, RunSettings
from domainadaptor.lab.records.store import AnyRun, Store, build
from domainadaptor.lab.records.training import RECORD_FILE, TrainingRecord, read_training
from domainadaptor.options import defaults_of

T = TypeVar("T")
_SOURCE_IMAGES = 2000  # that a method may see, as in the EATA paper


@dataclass
class Runner:
    """Keeps data sets, images and the last network open for the next run."""

    root: Path | None
    images: Path | None  # cache of decoded images; None decodes them each time
    device: torch.device
    _kept: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    _network: tuple[str, LoadedNetwork] | None = None
    _source_logits: tuple[Any, SourceLogits] = (None, {})  # logits of the source model on the last stream

    def _once(self, make: Callable[[], T], *key: Any) -> T:
        if key not in self._kept:
            self._kept[key] = make()
        kept: T = self._kept[key]
        return kept

    def dataset(self, name: str, options: Mapping[str, Any] | None = None) -> DomainDataset:
        """Return a data set, opened once."""
        return self._once(lambda: open_dataset(name, self.root, **(options or {})), "dataset", _key(name, options))

    def fingerprint(self, name: str, options: Mapping[str, Any]) -> str:
        """Return the fingerprint of a data set, computed once."""
        return self._once(lambda: self.dataset(name, options).fingerprint(), "fingerprint", _key(name, options))

    def write_provenance(self, spec: RunSpec, store: Store) -> None:
        """Write the manifest of the data set, and the training record of the network, unless they are there."""
        if not store.has("manifest", self.fingerprint(spec.dataset, spec.data_options)):
            content = self.dataset(spec.dataset, spec.data_options).manifest()
            store.write(Manifest.model_validate_json(json.dumps(content)))
        trained = _training_record(spec.network)
        if trained is not None and not store.has("training", trained.id):
            store.write(trained)

    def settings(self, spec: RunSpec) -> RunSettings:
        """Return the settings of a run as its record has them; an AdaptationError if data or network are missing."""
        known = self._inspect(spec.network)[0].model_copy(update={"name": spec.network.label, "seed": spec.seed})
        return spec.settings(self.fingerprint(spec.dataset, spec.data_options), known, self._seen(spec))

    def run(self, spec: RunSpec, progress: Counted = lambda *_: None) -> AnyRun:
        """Do a run and return its record; an AdaptationError if something is missing or does not fit."""
        self.settings(spec)  # opens data and network before the clock starts
        begun = time.perf_counter()
        measured = self._measure(spec) if spec.measure else self._evaluate(spec, progress)
        measured["preprocessing"] = asdict(self.open(spec.network).preprocessing)
        return self._record(spec, **measured, defaults=defaults(spec), took=round(time.perf_counter() - begun, 2))

    def failed(self, spec: RunSpec, reason: str) -> AnyRun:
        """Return the record of a run that failed."""
        return self._record(spec, failed=reason)

    def _record(self, spec: RunSpec, **content: Any) -> AnyRun:
        head = {
            "kind": "measurement" if spec.measure else "evaluation",
            "run": self.settings(spec).model_dump(mode="json"),
            "command": spec.command(),
            "environment": environment(self.device),
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        return build(head | content)

    def _evaluate(self, spec: RunSpec, progress: Counted) -> dict[str, Any]:
        opened = self.open(spec.network)
        dataset, cautions = self._labeled(spec, opened)
        cautions += self._source_cautions(spec)
        test, segments = self.stream(spec, opened)
        own = options_from(
            spec.method,
            heads=opened.heads,
            preprocessing=opened.preprocessing,
            source_images=self._source_images(spec, opened),
            target_images=_Batches(test, segments),
            seed=spec.seed,
        )
        adaptor = domainadaptor.adapt(opened.network, spec.method, **{**own, **spec.options})
        stream = replace(spec, method="", options={}, seed=0, sources=())
        if self._source_logits[0] != stream:
            self._source_logits = stream, {}
        found = evaluate_stream(
            adaptor, segments, test, len(dataset.classes), progress=progress, known=self._source_logits[1]
        )
        items = {item for segment in segments for batch in segment.batches for item in batch}
        used = {(item.domain, dataset.domain(item.domain).examples[item.position].name) for item in items}
        skipped = {
            f"{domain}/{name}": why
            for domain, held in test.pictures.items()
            for name, why in held.skipped.items()
            if (domain, name) in used
        }
        images = {domain: score["images"] for domain, score in found["scores"].items()}
        if not images:
            raise BadFile(f"None of the images of {', '.join(spec.domains)} can be read: {skipped}")
        found["notes"] = [*opened.notes, *cautions, *found["notes"]]
        return {"images": images, "skipped": skipped, "classes": dataset.classes, "cautions": cautions, **found}

    def _measure(self, spec: RunSpec) -> dict[str, Any]:
        opened = self.open(spec.network)
        dataset, _ = self._labeled(spec, opened)
        inputs = MeasurementInputs(opened, dataset, *self.stream(spec, opened), spec.network.path)
        values = find_measurement(spec.measure)(inputs, **spec.options)
        return {"values": values.model_dump(mode="json", by_alias=True), "notes": opened.notes}

    def stream(self, spec: RunSpec, opened: LoadedNetwork) -> tuple[SegmentLoader, list[Segment]]:
        """Return the images of a run and their order."""
        (dataset, _), seen = self._labeled(spec, opened), self._seen(spec)
        images = {domain: self._images_of(spec, domain, opened.preprocessing) for domain in spec.domains}
        items = {
            domain: shuffled(_items(dataset, domain, "val" if domain in seen else "test"), spec.order, spec.images)
            for domain in spec.domains
        }
        segments = arrange(spec.protocol, items, spec.batch_size, spec.order, spec.protocol_options)
        return SegmentLoader(images, opened.preprocessing, self.device), segments

    def _source_images(self, spec: RunSpec, opened: LoadedNetwork) -> "_Batches | None":
        """Return some of the images that the network was trained on."""
        dataset = self.dataset(spec.dataset, spec.data_options)
        sources = spec.sources or self.sources_of(spec.network, spec.dataset, spec.data_options)
        if not sources:
            return None
        items = [i for name in sources for i in _items(dataset, name, "train") or _items(dataset, name, "test")]
        order = np.random.default_rng(spec.order).permutation(len(items))[:_SOURCE_IMAGES]
        images = {source: self._images_of(spec, source, opened.preprocessing) for source in sources}
        batches = tuple(tuple(items[at] for at in order[start : start + 64]) for start in range(0, len(order), 64))
        return _Batches(SegmentLoader(images, opened.preprocessing, self.device), [Segment("sources", batches, True)])

    def _images_of(self, spec: RunSpec, domain: str, preprocessing: Preprocessing) -> DomainImages:
        def prepare() -> DomainImages:
            images = DomainImages(self.dataset(spec.dataset, spec.data_options).domain(domain), preprocessing)
            if self.images is not None:
                images.cache(self.images)
            return images

        return self._once(prepare, "images", _key(spec.dataset, spec.data_options), domain, preprocessing)

    def open(self, network: LocatedNetwork) -> LoadedNetwork:
        """Return the network with its preprocessing, classes and heads."""
        key = _network_key(network)
        if self._network is None or self._network[0] != key:
            argument = str(network.path or network.argument)
            opened = load_network(argument, network.weights, network.raw, self.root)
            known = self._kept.get(("network", key))
            if network.path is not None and known is not None and digest_of(network.path) != known[0].sha256:
                raise BadFile(f"{argument!r} was replaced during the run; repeat the command to use the new file")
            opened.network.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
            self._network = key, opened
        return self._network[1]

    def _labeled(self, spec: RunSpec, opened: LoadedNetwork) -> tuple[DomainDataset, list[str]]:
        """Return the data set with labels by the network's outputs, and a caution if those have no names."""
        dataset = self.dataset(spec.dataset, spec.data_options)
        if opened.classes == tuple(map(str, range(len(dataset.classes)))) != dataset.classes:
            text = f"the outputs of {opened.name} have no names: taken as {some(dataset.classes)}, in this order"
            return dataset, [text]
        key = _key(spec.dataset, spec.data_options), opened.classes
        return self._once(lambda: dataset.with_classes(opened.classes), "labels", *key), []

    def sources_of(self, network: LocatedNetwork, dataset: str, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the domains of a data set that a network was trained on: same name, or same images."""
        known, name, images = self._inspect(network)
        opened = self.dataset(dataset, options)
        if opened.name == name or (images and self.fingerprint(dataset, options) == images):
            return tuple(source for source in known.sources if source in opened.domains)
        return ()

    def _seen(self, spec: RunSpec) -> list[str]:
        sources = self.sources_of(spec.network, spec.dataset, spec.data_options)
        return [domain for domain in spec.domains if domain in sources]

    def _source_cautions(self, spec: RunSpec) -> list[str]:
        """Return warnings about domains that the network was, or may have been, trained on."""
        seen = self._seen(spec)
        known, name, _ = self._inspect(spec.network)
        return [f"{domain} is a source of this network: its validation images were used" for domain in seen] + [
            f"{domain} is also the name of a source domain of this network, in {name!r}: if the images are the same, "
            "this is not a test"
            for domain in spec.domains
            if domain in known.sources and domain not in seen
        ]

    def _inspect(self, network: LocatedNetwork) -> tuple[CheckpointInfo, str, str]:
        """Return a description of a network, and the name and the fingerprint of the data it was trained on."""

        def inspect() -> tuple[CheckpointInfo, str, str]:
            info: dict[str, Any] = {
                "name": network.label,
                "seed": 0,
                "training": network.training,
                "command": network.command,
            }
            try:
                opened = self.open(network)
            except AdaptationError:
                if network.path is None or not network.path.is_file():
                    raise
                # A file that cannot be opened still has a digest: its runs have ids, fail, and are recorded as failed.
                return CheckpointInfo(**info, sha256=digest_of(network.path)), "", ""
            trained = _training_record(network)
            info["command"] = network.command or (trained.command if trained else "")
            digest = digest_of(network.path) if network.path is not None else digest_of_weights(opened.network)
            info |= {"sha256": digest, "network": opened.name, "size": opened.preprocessing.size}
            known = CheckpointInfo(**info, sources=tuple(opened.sources), note="; ".join(opened.notes))
            return known, opened.dataset, str(opened.recipe.get("data", ""))

        return self._once(inspect, "network", _network_key(network))


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


def _key(name: str, options: Mapping[str, Any] | None) -> str:
    """Return a key of a data set: other options may give other images under the same name."""
    return json.dumps([name, dict(options or {})], sort_keys=True)


def defaults(spec: RunSpec) -> dict[str, Any]:
    """Return the values of the options that a run leaves to its method or measurement and its protocol."""
    method = domainadaptor.method_info
    known = defaults_of(find_measurement(spec.measure)) if spec.measure else method(spec.method).defaults
    left = {name: value for name, value in known.items() if name not in spec.options}
    for name, value in protocol_options(spec.protocol).items() if not spec.measure else ():
        left |= {f"{spec.protocol} {name}": value} if name not in spec.protocol_options else {}
    return json.loads(json.dumps(left, default=repr))  # type: ignore[no-any-return]


def _items(dataset: DomainDataset, domain: str, part: Split) -> list[ImageRef]:
    found = dataset.domain(domain)
    wanted = {example.name for example in found.select(part)}
    return [ImageRef(domain, at, example.label) for at, example in enumerate(found.examples) if example.name in wanted]
