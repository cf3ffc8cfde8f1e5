"""One training run, from a recipe and a data set to a checkpoint and its record."""

import copy
import json
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from domainadaptor.errors import BadFile, BadOption, UnsupportedNetwork
from domainadaptor.lab.data.augment import before_cropping
from domainadaptor.lab.data.domains import DomainDataset, Split
from domainadaptor.lab.data.image_cache import DomainImages, Progress
from domainadaptor.lab.data.loaders import DomainBatch, TrainingBatches, images_each, ordered_batches
from domainadaptor.lab.data.preprocessing import Preprocessing, squashed
from domainadaptor.lab.environment import environment
from domainadaptor.lab.files import owned, replacing
from domainadaptor.lab.networks.checkpoint import Checkpoint, CheckpointCard, load_checkpoint, save_checkpoint
from domainadaptor.lab.networks.context import ContextNetwork
from domainadaptor.lab.networks.zoo import find_network
from domainadaptor.lab.records.training import RECORD_FILE, TrainingRecord, read_training
from domainadaptor.lab.training import distributed
from domainadaptor.lab.training.algorithm import Algorithm
from domainadaptor.lab.training.fit import RESUME_FILE, Batches, TrainingLoop, TrainingProgress, validate
from domainadaptor.lab.training.recipe import CHECKPOINT_FILE, TrainingRecipe, find_start_weights
from domainadaptor.lab.training.selection import make_selection
from domainadaptor.lab.training.start import StartNetwork, build_start_network


class TrainingWorkspace(NamedTuple):
    """Device and folders of a run."""

    device: torch.device
    root: Path | None  # of data sets and published weights
    runs: Path  # each run has a folder below it
    images: Path | None  # cache of decoded images; None decodes them each time
    start: Path | None = None  # weights file to start from


class TrainedNetwork(NamedTuple):
    """The record of a run, and its checkpoint."""

    record: TrainingRecord
    checkpoint: Path

    def to_dict(self) -> dict[str, Any]:
        """Return the record and the path of the checkpoint, for JSON."""
        return self.record.model_dump(mode="json", exclude_unset=True) | {"checkpoint": str(self.checkpoint)}


@dataclass(frozen=True)
class Trainer:
    """Trains one recipe on one data set."""

    recipe: TrainingRecipe
    dataset: DomainDataset
    workspace: TrainingWorkspace
    on_step: Callable[[TrainingProgress], object] = lambda progress: None
    on_decode: Progress = lambda what, done, total: None
    command: str = ""  # for the record

    def train(self, targets: Sequence[str]) -> TrainedNetwork:
        """Train, or resume an interrupted run, or reuse a complete one; return its record.

        The target domains are evaluated once, after the weights were selected on the source domains.
        """
        folder = self.workspace.runs / self.recipe.id()
        record_file, checkpoint = folder / RECORD_FILE, folder / CHECKPOINT_FILE
        with owned(folder) if distributed.is_main_process() else nullcontext():
            if record_file.is_file() and checkpoint.is_file():
                record = self._finished(record_file)
            else:
                record = self._train(folder)
                _write(record_file, record)
                distributed.barrier()
                (folder / RESUME_FILE).unlink(missing_ok=True)
            if missing := [target for target in targets if target not in record.target_accuracy]:
                accuracy = dict(record.target_accuracy) | self._target_accuracy(missing, checkpoint)
                record = record.model_copy(update={"target_accuracy": accuracy})
                _write(record_file, record)
        return TrainedNetwork(record, checkpoint)

    def _finished(self, path: Path) -> TrainingRecord:
        try:
            return read_training(path)
        except ValueError as error:
            raise BadFile(
                f"Record {str(path)!r} is corrupt ({error}). {CHECKPOINT_FILE} in the same folder can still be used; "
                "to train again, to the same weights and a new record, delete the corrupt file"
            ) from error

    def _train(self, folder: Path) -> TrainingRecord:
        recipe, device, dataset = self.recipe, self.workspace.device, self.dataset
        if len(dataset.classes) < 2:
            raise BadFile(f"{dataset.name} has only the class {dataset.classes[0]!r}: expected two or more classes")
        file = self.workspace.start or find_start_weights(recipe.weights, self.workspace.runs)
        start = build_start_network(recipe, dataset, self.workspace.root, file)
        algorithm = recipe.make_algorithm(start.network, len(dataset.classes))
        algorithm = algorithm.to(device).to(memory_format=torch.channels_last)
        distributed.broadcast_parameters(algorithm)
        _try_a_step(algorithm, recipe, device)
        images = [self._images(source, squashed(before_cropping(recipe.size))) for source in recipe.sources]
        held = {source: self._images(source, self._preprocessing()) for source in recipe.sources}
        _check_images([*images, *held.values()])
        validation = {source: self._batches(own, "val") for source, own in held.items()}
        training = TrainingBatches(images, self._preprocessing(), recipe.batch_size, recipe.seed, algorithm.rounds)
        selection = make_selection(recipe.select, recipe.select_options)
        started = time.perf_counter()
        loop = TrainingLoop(algorithm, training, validation, selection, recipe, device, folder, self.on_step)
        outcome = loop.run()
        metrics = validate(algorithm.network, validation, device)
        if distributed.is_main_process():
            save_checkpoint(folder / CHECKPOINT_FILE, self._checkpoint(algorithm, metrics, start.note))
        unreadable = {
            f"{own.domain.name}/{name}": why for own in (*images, *held.values()) for name, why in own.skipped.items()
        }
        outcome["chosen"] += ", adapted to each batch" if algorithm.adapts else ""
        return self._record(start, outcome, metrics, unreadable, time.perf_counter() - started)

    def _checkpoint(self, algorithm: Algorithm, metrics: dict[str, Any], note: str) -> Checkpoint:
        recipe, network = self.recipe, algorithm.network
        card = CheckpointCard(
            network=recipe.network,
            classes=self.dataset.classes,
            preprocessing=self._preprocessing(),
            head_bias=recipe.head_bias,
            norm=recipe.norm,
            context=network.channels if isinstance(network, ContextNetwork) else 0,
            dataset=self.dataset.name,
            splits=self.dataset.splits,
            sources=recipe.sources,
            seed=recipe.seed,
            recipe=recipe.model_dump(mode="json"),
            metrics=metrics,
            heads=tuple(algorithm.heads),
            note=note,
        )
        heads = {name: head.state_dict() for name, head in algorithm.heads.items()}
        return Checkpoint(card, network.state_dict(), heads)

    def _record(
        self,
        start: StartNetwork,
        outcome: dict[str, Any],
        metrics: dict[str, Any],
        unreadable: dict[str, str],
        seconds: float,
    ) -> TrainingRecord:
        epochs = [{**entry, "validation": entry["validation"][-1]} for entry in outcome["log"]]
        for entry in epochs:
            del entry["statistics_variance"]
        content = {
            "name": self.recipe.id(),
            "recipe": self.recipe.model_dump(mode="json"),
            "started_from": start.origin,
            "note": start.note,
            "splits": self.dataset.splits,
            "images": {name: len(domain.examples) for name, domain in self.dataset.domains.items()},
            "skipped": dict(self.dataset.skipped) | unreadable,
            "unreadable": sorted(unreadable),
            "source_validation": metrics,
            "target_accuracy": {},
            "chosen": outcome["chosen"],
            "seconds": sum(entry["seconds"] for entry in epochs),
            "seconds_of_this_process": seconds,
            "epochs": epochs,
            "statistics_variance": outcome["statistics_variance"],
            "environment": environment(self.workspace.device) | {"processes": distributed.world_size()},
            "command": self.command,
        }
        return TrainingRecord.model_validate_json(json.dumps(content, allow_nan=False))

    def _target_accuracy(self, targets: Sequence[str], checkpoint: Path) -> dict[str, float]:
        device = self.workspace.device
        network = load_checkpoint(checkpoint).build(checkpoint).to(device).to(memory_format=torch.channels_last)
        tested = {target: self._batches(self._images(target, self._preprocessing()), "test") for target in targets}
        return validate(network.eval(), tested, device)["domains"]  # type: ignore[no-any-return]

    def _preprocessing(self) -> Preprocessing:
        """Return the paper's test pipeline at the recipe's size, with the network's mean and deviation."""
        own = find_network(self.recipe.network).preprocessing
        return replace(squashed(self.recipe.size, own.mean, own.std), interpolation=own.interpolation)

    def _images(self, domain: str, preprocessing: Preprocessing) -> DomainImages:
        images = DomainImages(self.dataset.domain(domain), preprocessing)
        if self.workspace.images is not None:
            images.cache(self.workspace.images, self.on_decode)
        return images

    def _batches(self, images: DomainImages, split: Split) -> Batches:
        # Shuffled: algorithms that adapt to a batch must not see one class per batch, as in the order of the files.
        return partial(ordered_batches, images, self._preprocessing(), split, 128, seed=0)


def _check_images(images: Iterable[DomainImages]) -> None:
    """Check before the first epoch that each source domain has images for training and validation."""
    splits: tuple[tuple[Split, str], ...] = (("train", "training"), ("val", "validation"))
    for own in images:
        domain = own.domain
        for split, what in splits:
            names = [example.name for example in domain.select(split)]
            if not names:
                why = f"has {len(domain.examples)} images, but none for {what}; add images"
            elif all(name in own.skipped for name in names):
                reason = f"{names[0]} ({own.skipped[names[0]]})"
                why = f"none of the {len(names)} {what} images can be read, for example {reason}; replace them"
            else:
                continue
            raise BadFile(f"domain {domain.name!r}: {why}, or leave the domain out with --source")


def _try_a_step(algorithm: Algorithm, recipe: TrainingRecipe, device: torch.device) -> None:
    """Run one update of a copy on blank images, so that unsupported networks fail early."""
    each = images_each(recipe.batch_size, len(recipe.sources))
    blank = torch.zeros(each, 3, recipe.size, recipe.size, device=device)
    labels = torch.zeros(each, dtype=torch.long, device=device)
    batches = [DomainBatch(blank, labels, source) for source in recipe.sources] * algorithm.rounds
    try:
        with torch.random.fork_rng(devices=[]):
            copied = copy.deepcopy(algorithm).train()
            output = copied.network(torch.cat([batch.images for batch in batches[: len(recipe.sources)]]))
            if not isinstance(output, Tensor):
                raise UnsupportedNetwork(f"in train mode it returns a {type(output).__name__} instead of logits")
            copied.update(batches, torch.Generator().manual_seed(0))
    except BadOption:
        raise
    except Exception as error:
        raise UnsupportedNetwork(
            f"{recipe.network} cannot be trained with {recipe.algorithm} at {recipe.size}x{recipe.size} and {each} "
            f"images per step from each of {len(recipe.sources)} domains: {str(error).splitlines()[0]}; choose another "
            "--size, --batch-size or --network"
        ) from error


def _write(path: Path, record: TrainingRecord) -> None:
    if distributed.is_main_process():
        with replacing(path) as temporary:
            temporary.write_text(record.model_dump_json(indent=1, exclude_unset=True) + "\n", encoding="utf-8")
