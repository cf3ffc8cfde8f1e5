"""Runs cells: opens what they name, once for many cells, and measures."""

import hashlib
import json
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

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
from domainadaptor.lab.experiments.analyses import MEASURES, Setting, training_record
from domainadaptor.lab.experiments.networks import Located, training_command
from domainadaptor.lab.experiments.run_spec import Cell, id_of
from domainadaptor.lab.experiments.store import FORMAT, Store
from domainadaptor.lab.files import digest_of
from domainadaptor.lab.method_inputs import options_from
from domainadaptor.lab.networks.loading import LoadedNetwork, load_network
from domainadaptor.lab.revision import revision
from domainadaptor.options import defaults_of

_DECIDING = ("torchvision", "timm", "pillow", "numpy")  # packages that decode, resize, or build networks
_SOURCE_IMAGES = 2000  # that a method may look at, as EATA's authors


@dataclass
class Workshop:
    """Data sets, images and the network that were opened last, so that the next cell finds them."""

    root: Path | None
    images: Path | None  # cache of decoded images; None decodes them each time
    device: torch.device
    preparing: Progress = lambda *_: None
    _datasets: dict[str, DomainDataset] = field(default_factory=dict)
    _fingerprints: dict[str, str] = field(default_factory=dict)
    _pictures: dict[tuple[str, str, Preprocessing], DomainImages] = field(
        default_factory=dict
    )  # by data set and options
    _known: dict[str, dict[str, Any]] = field(default_factory=dict)
    _origins: dict[str, tuple[str, str]] = field(default_factory=dict)  # of a network: its data set, its images
    _network: tuple[str, LoadedNetwork] | None = None
    _plain: tuple[Any, PlainLogits] = (None, {})  # of the last network and stream, for the next method to meet them

    def dataset(self, name: str, options: Mapping[str, Any] | None = None) -> DomainDataset:
        """The data set of that name, opened once."""
        key = _key(name, options or {})
        if key not in self._datasets:
            self._datasets[key] = open_dataset(name, self.root, **dict(options or {}))
        return self._datasets[key]

    def fingerprint(self, name: str, options: Mapping[str, Any]) -> str:
        """Of the data set; it takes a while for a large one."""
        key = _key(name, options)
        if key not in self._fingerprints:
            self._fingerprints[key] = self.dataset(name, options).fingerprint()
        return self._fingerprints[key]

    def write_manifest(self, cell: Cell, store: Store) -> None:
        """Writes what the data set of a cell holds beside the records, once."""
        fingerprint = self.fingerprint(cell.dataset, cell.data_options)
        store.write_manifest(fingerprint, self.dataset(cell.dataset, cell.data_options).manifest)

    def run_of(self, cell: Cell) -> dict[str, Any]:
        """The settings of a cell, as its record has them.

        Raises:
            AdaptationError: Data or network are not there.
        """
        known = self._known_of(cell.network, cell.seed)
        return cell.run(self.fingerprint(cell.dataset, cell.data_options), known, self._seen(cell))

    def measure(self, cell: Cell, progress: Counted = lambda *_: None) -> dict[str, Any]:
        """Runs a cell; its record, without a sum.

        Raises:
            AdaptationError: Something that it needs is missing, or does not fit.
        """
        run = self.run_of(cell)
        begun = time.perf_counter()
        record = {
            "kind": "measurement" if cell.measure else "evaluation",
            "format": FORMAT,
            "id": id_of(run),
            "run": run,
            "command": cell.command(),
        }
        measured = self._values(cell) if cell.measure else self._scores(cell, progress)
        return {
            **record,
            **measured,
            "preprocessing": json.loads(json.dumps(asdict(self.open(cell.network).preprocessing))),
            "defaults": defaults(cell),
            "took": round(time.perf_counter() - begun, 2),
            "environment": environment(self.device),
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }

    def _scores(self, cell: Cell, progress: Counted) -> dict[str, Any]:
        dataset = self.dataset(cell.dataset, cell.data_options)
        opened = self._open_for(cell)
        unnamed = _check_classes(opened, dataset)
        test, segments = self.stream(cell, opened)
        options = self._options(cell, opened, test, segments)
        adaptor = domainadaptor.adapt(opened.network, cell.method, **options)
        found = evaluate(adaptor, segments, test, len(dataset.classes), progress, self._plain_logits(cell))
        met = {
            (item.domain, dataset.domain(item.domain).examples[item.position].name)
            for segment in segments
            for batch in segment.batches
            for item in batch
        }
        skipped = {
            f"{domain}/{name}": why
            for domain, held in test.pictures.items()
            for name, why in held.skipped.items()
            if (domain, name) in met
        }
        images = {domain: score["images"] for domain, score in found["scores"].items()}
        if not images:
            raise BadFile(f"none of the images of {', '.join(cell.domains)} can be read: {skipped}")
        cautions = [*unnamed, *self._sources_tested(cell)]
        notes = [*opened.notes, *cautions, *found.pop("notes")]
        record = {"images": images, "skipped": skipped, "classes": list(dataset.classes), **found, "notes": notes}
        return record | ({"cautions": cautions} if cautions else {})

    def stream(self, cell: Cell, opened: LoadedNetwork) -> tuple[SegmentLoader, list[Segment]]:
        """The images of a cell and their order."""
        dataset = self.dataset(cell.dataset, cell.data_options)
        pictures, items = {}, {}
        seen = self._seen(cell)
        for domain in cell.domains:
            part: Split = "val" if domain in seen else "test"
            pictures[domain] = self._pictures_of(cell, domain, opened.preprocessing)
            items[domain] = shuffled(_items(dataset, domain, part), cell.order, cell.images)
        segments = arrange(cell.protocol, items, cell.batch_size, cell.order, cell.protocol_options)
        return SegmentLoader(pictures, opened.preprocessing, self.device), segments

    def _plain_logits(self, cell: Cell) -> PlainLogits:
        stream = replace(cell, method="", options={}, seed=0, sources=())
        if self._plain[0] != stream:
            self._plain = stream, {}
        return self._plain[1]

    def _values(self, cell: Cell) -> dict[str, Any]:
        if cell.measure not in MEASURES:
            raise BadOption(f"there is no measurement {cell.measure!r}; available: {', '.join(MEASURES)}")
        opened = self._open_for(cell)
        test, segments = self.stream(cell, opened)
        dataset = self.dataset(cell.dataset, cell.data_options)
        setting = Setting(opened, dataset, test, segments, cell.network.path)
        values = MEASURES[cell.measure](setting, **cell.options)
        return {"values": values, "notes": list(opened.notes)}

    def _options(
        self, cell: Cell, opened: LoadedNetwork, test: SegmentLoader, segments: Sequence[Segment]
    ) -> dict[str, Any]:
        """The method's options: those of the cell, and what it needs and can be had."""
        own = options_from(
            cell.method,
            heads=opened.heads,
            preprocessing=opened.preprocessing,
            source_images=self._source_images(cell, opened),
            target_images=_Batches(test, segments),
            seed=cell.seed,
        )
        return {**own, **cell.options}

    def _source_images(self, cell: Cell, opened: LoadedNetwork) -> "_Batches | None":
        """Some of the images that the network was trained on, in plain batches."""
        dataset = self.dataset(cell.dataset, cell.data_options)
        sources = cell.sources or self.sources_of(cell.network, cell.dataset, cell.data_options)
        if not sources:
            return None
        items: list[ImageRef] = []
        for source in sources:
            items += _items(dataset, source, "train") or _items(dataset, source, "test")
        order = np.random.default_rng(cell.order).permutation(len(items))[:_SOURCE_IMAGES]
        chosen = tuple(items[at] for at in order)
        pictures = {source: self._pictures_of(cell, source, opened.preprocessing) for source in sources}
        batches = tuple(chosen[start : start + 64] for start in range(0, len(chosen), 64))
        return _Batches(SegmentLoader(pictures, opened.preprocessing, self.device), [Segment("sources", batches, True)])

    def _pictures_of(self, cell: Cell, domain: str, preprocessing: Preprocessing) -> DomainImages:
        key = (_key(cell.dataset, cell.data_options), domain, preprocessing)
        if key not in self._pictures:
            pictures = DomainImages(self.dataset(cell.dataset, cell.data_options).domain(domain), preprocessing)
            if self.images is not None:
                pictures.cache(self.images, self.preparing)
            self._pictures[key] = pictures
        return self._pictures[key]

    def open(self, network: Located) -> LoadedNetwork:
        """The network, and what belongs to it."""
        key = _network_key(network)
        if self._network is None or self._network[0] != key:
            argument = str(network.path) if network.path is not None else network.argument
            opened = load_network(argument, network.weights, network.raw.classes, self.root).prepared(network.raw)
            if (
                network.path is not None
                and key in self._known
                and digest_of(network.path) != self._known[key]["sha256"]
            ):
                raise BadFile(
                    f"{str(network.path)!r} was replaced meanwhile: the same command runs it as another network"
                )
            opened.network.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
            self._network = key, opened
        return self._network[1]

    def _open_for(self, cell: Cell) -> LoadedNetwork:
        """The network of a cell; its outputs in the order of the data set's classes, where they were named."""
        opened = self.open(cell.network)
        if cell.network.raw.classes:
            opened = opened.in_order(self.dataset(cell.dataset, cell.data_options).classes)
            self._network = _network_key(cell.network), opened
        return opened

    def sources_of(self, network: Located, dataset: str, options: Mapping[str, Any]) -> tuple[str, ...]:
        """The domains of a data set that a network was trained on: it has the same name, or the same images."""
        known = self._known_of(network, 0)
        name, images = self._origins[_network_key(network)]
        if self.dataset(dataset, options).name == name or (images and self.fingerprint(dataset, options) == images):
            return tuple(source for source in known["sources"] if source in self.dataset(dataset, options).domains)
        return ()

    def _seen(self, cell: Cell) -> list[str]:
        sources = self.sources_of(cell.network, cell.dataset, cell.data_options)
        return [domain for domain in cell.domains if domain in sources]

    def _sources_tested(self, cell: Cell) -> list[str]:
        """What must be said where a network is tested on a domain that it was, or may have been, trained on."""
        seen = self._seen(cell)
        known = self._known_of(cell.network, cell.seed)
        own = [f"{domain} is a source of this network: its validation images were taken" for domain in seen]
        return own + [
            f"{domain} has the name of a domain that this network was trained on, in "
            f"{self._origins[_network_key(cell.network)][0]!r}: if they are the same images, this is no test"
            for domain in cell.domains
            if domain in known["sources"] and domain not in seen
        ]

    def _known_of(self, network: Located, seed: int) -> dict[str, Any]:
        """What a record says of a network."""
        key = _network_key(network)
        if key not in self._known:
            self._known[key] = self._look_at(network)
        return {"name": network.label, **self._known[key], "seed": seed}

    def _look_at(self, network: Located) -> dict[str, Any]:
        command = network.command
        try:
            opened = self.open(network)
        except AdaptationError:
            if network.path is None or not network.path.is_file():
                raise
            # A file that cannot be used has a digest still: its cells have a name, fail, and are recorded as failed.
            self._origins[_network_key(network)] = "", ""
            return {"sha256": digest_of(network.path), "command": command, "sources": []}
        self._origins[_network_key(network)] = opened.dataset, str(opened.recipe.get("data", ""))
        beside = None if network.path is None else network.path.parent / "record.json"
        if not command and beside is not None:
            command = str(training_record(beside).get("command", "")) or training_command(opened.recipe)
        return {
            "sha256": digest_of(network.path) if network.path is not None else _tensors(opened.network),
            "command": command,
            "network": opened.name,
            "size": opened.preprocessing.size,
            "sources": list(opened.sources),
            "note": "; ".join(opened.notes),
        }


@dataclass(frozen=True)
class _Batches:
    """Images without labels, in batches, that can be gone through again and again."""

    test: SegmentLoader
    segments: Sequence[Segment]

    def __iter__(self) -> Iterator[Tensor]:
        for _, items, pixels in self.test.batches(self.segments):
            if items:
                yield pixels.to(self.test.device)


def _network_key(network: Located) -> str:
    return f"{network.argument} {network.weights} {network.raw}"


def _key(name: str, options: Mapping[str, Any]) -> str:
    """Of a data set: other options may be other images under the same name."""
    return json.dumps([name, dict(options)], sort_keys=True)


def defaults(cell: Cell) -> dict[str, Any]:
    """The values of the options that a cell leaves to its method or measurement and its protocol, for a record."""
    known = defaults_of(MEASURES[cell.measure]) if cell.measure else domainadaptor.method_info(cell.method).defaults
    left = {name: value for name, value in known.items() if name not in cell.options}
    for name, value in protocol_options(cell.protocol).items() if not cell.measure else ():
        left |= {f"{cell.protocol} {name}": value} if name not in cell.protocol_options else {}
    return cast(dict[str, Any], json.loads(json.dumps(left, default=repr)))


def environment(device: torch.device) -> dict[str, Any]:
    """Versions and machine, for a record."""
    return {
        "domainadaptor": domainadaptor.__version__,
        "commit": revision(),
        "torch": torch.__version__,
        **{name: version(name) for name in _DECIDING},
        "python": platform.python_version(),
        "device": str(device),
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "processor": _processor(),
    }


def _processor() -> str:
    """The name of the processor, where the system tells."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _items(dataset: DomainDataset, domain: str, part: Split) -> list[ImageRef]:
    found = dataset.domain(domain)
    wanted = {example.name for example in found.select(part)}
    return [ImageRef(domain, at, example.label) for at, example in enumerate(found.examples) if example.name in wanted]


def _check_classes(opened: LoadedNetwork, dataset: DomainDataset) -> list[str]:
    """Refuses a network for other classes; what must be said where its outputs have no names."""
    own, wanted = tuple(opened.classes), tuple(dataset.classes)
    if own == wanted:
        return []
    if own == tuple(map(str, range(len(wanted)))):
        return [f"the outputs of {opened.name} have no names: taken for {_some(wanted)}, in this order"]
    raise BadOption(
        f"{opened.name} tells {len(own)} classes apart ({_some(own)}), {dataset.name} has {len(wanted)} "
        f"({_some(wanted)}): expected the same in the same order. Name the folders of classes as the network does, or "
        "train one on these"
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (" …" if len(names) > 8 else "")


def _tensors(network: nn.Module) -> str:
    """The SHA-256 of all weights, for a network that is no file of ours."""
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(name.encode() + tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
