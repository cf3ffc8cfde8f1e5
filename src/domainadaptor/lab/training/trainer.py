"""One training run, from a recipe and a data set to a checkpoint and a record of it."""

import copy
import json
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import domainadaptor
from domainadaptor.errors import BadFile, BadOption, UnsupportedNetwork
from domainadaptor.lab.data.augment import before_cropping
from domainadaptor.lab.data.domains import DomainDataset, Split
from domainadaptor.lab.data.image_cache import DomainImages, Progress
from domainadaptor.lab.data.loaders import DomainBatch, TrainingBatches, images_each, ordered_batches
from domainadaptor.lab.data.preprocessing import Preprocessing, squashed
from domainadaptor.lab.files import owned, replacing
from domainadaptor.lab.networks.checkpoint import (
    Checkpoint,
    CheckpointCard,
    is_checkpoint,
    load_checkpoint,
    make_network,
    save_checkpoint,
)
from domainadaptor.lab.networks.context import ContextNetwork
from domainadaptor.lab.networks.pretrained import find_pretrained, load_backbone
from domainadaptor.lab.networks.weights import load_weights, read_weights
from domainadaptor.lab.networks.zoo import find_network
from domainadaptor.lab.revision import revision
from domainadaptor.lab.training import distributed
from domainadaptor.lab.training.algorithm import Algorithm
from domainadaptor.lab.training.fit import Batches, TrainingProgress, TrainingSchedule, fit, validate
from domainadaptor.lab.training.recipe import CHECKPOINT_FILE, TrainingRecipe
from domainadaptor.lab.training.selection import make_selection

_IN_THE_LOG = ("validation", "statistics_variance")  # of every epoch; the record has the last


@dataclass(frozen=True)
class TrainingWorkspace:
    """Where a run works: device, data root, folders."""

    device: torch.device
    root: Path | None
    runs: Path  # each run has a folder of its own below it
    images: Path | None  # cache of decoded images; None decodes them each time
    start: Path | None = None  # the file of the weights that training starts from, where it is no run's


@dataclass(frozen=True)
class TrainingCallbacks:
    """Whom a run tells how it goes."""

    moment: Callable[[TrainingProgress], None]
    preparing: Progress


def train(
    recipe: TrainingRecipe,
    dataset: DomainDataset,
    targets: Sequence[str],
    place: TrainingWorkspace,
    watcher: TrainingCallbacks,
    command: str,
) -> dict[str, Any]:
    """Trains, or finds what was trained before with the same recipe; returns the record, which lies beside the weights.

    The target domains are looked at once, after the weights were chosen on the source domains, to report accuracy.

    Args:
        recipe: How.
        dataset: The images.
        targets: Domains to report accuracy on, that are no sources.
        place: Where.
        watcher: Whom to tell.
        command: What was typed, for the record.
    """
    _check_images(recipe, dataset)
    folder = place.runs / recipe.id()
    with owned(folder) if distributed.is_main_process() else nullcontext():
        return _train_or_find(recipe, dataset, targets, place, watcher, command, folder)


def _check_images(recipe: TrainingRecipe, dataset: DomainDataset) -> None:
    """What can be known of the data before anything is trained."""
    if len(dataset.classes) < 2:
        raise BadFile(f"{dataset.name} has the class {dataset.classes[0]!r} alone: expected two or more to tell apart")
    for source in recipe.sources:
        for part, what in (("train", "to train on"), ("val", "for validation")):
            if not dataset.domain(source).select(part):  # type: ignore[arg-type]
                count = len(dataset.domain(source).examples)
                raise BadFile(
                    f"domain {source!r} has {count} images, none of them {what}; add images, or leave the domain out "
                    "with --source"
                )


def _check_readable(held: Sequence[DomainImages]) -> None:
    """Before the first epoch instead of after it, where a cache knows which images are damaged."""
    for pictures in held:
        for part, what in (("train", "to train on"), ("val", "for validation")):
            names = [example.name for example in pictures.domain.select(part)]  # type: ignore[arg-type]
            if all(name in pictures.skipped for name in names):
                raise BadFile(
                    f"domain {pictures.domain.name!r} has {len(names)} images {what}, none of which can be read, as "
                    f"{names[0]} ({pictures.skipped[names[0]]}); replace them, or leave the domain out with --source"
                )


def _train_or_find(
    recipe: TrainingRecipe,
    dataset: DomainDataset,
    targets: Sequence[str],
    place: TrainingWorkspace,
    watcher: TrainingCallbacks,
    command: str,
    folder: Path,
) -> dict[str, Any]:
    preprocessing = _preprocessing(recipe)
    record_path, weights_path = folder / "record.json", folder / CHECKPOINT_FILE
    if record_path.is_file() and weights_path.is_file():
        record = _read(record_path)
    else:
        record = _train(recipe, dataset, place, watcher, preprocessing, folder) | {"command": command}
        _write(record_path, record)
        distributed.barrier()
        (folder / "resume.pt").unlink(missing_ok=True)
    missing = [target for target in targets if target not in record["target_accuracy"]]
    if missing:
        record["target_accuracy"] |= _target_accuracy(missing, dataset, place, watcher, preprocessing, weights_path)
        _write(record_path, record)
    return record | {"checkpoint": str(weights_path)}


def _train(
    recipe: TrainingRecipe,
    dataset: DomainDataset,
    place: TrainingWorkspace,
    watcher: TrainingCallbacks,
    preprocessing: Preprocessing,
    folder: Path,
) -> dict[str, Any]:
    network, origin, note = _start_network(recipe, dataset, place)
    algorithm = recipe.make(network, len(dataset.classes)).to(place.device).to(memory_format=torch.channels_last)
    distributed.broadcast_parameters(algorithm)
    torch.backends.cudnn.deterministic = True  # the same command ends with the same weights, on a GPU too
    _try_a_step(algorithm, recipe, place.device)
    larger = squashed(before_cropping(recipe.size))
    sources = [_pictures(dataset, source, larger, place, watcher) for source in recipe.sources]
    training = TrainingBatches(
        sources,
        preprocessing,
        recipe.batch_size,
        recipe.seed,
        algorithm.rounds,
    )
    pictures = {source: _pictures(dataset, source, preprocessing, place, watcher) for source in recipe.sources}
    validation = {source: _batches(p, preprocessing, "val") for source, p in pictures.items()}
    _check_readable([*sources, *pictures.values()])
    plan = TrainingSchedule(recipe.epochs, recipe.lr, recipe.schedule, recipe.warmup, recipe.precision)
    begun = time.perf_counter()
    outcome = fit(
        algorithm,
        training,
        validation,
        make_selection(recipe.select, recipe.select_options),
        plan,
        seed=recipe.seed,
        device=place.device,
        folder=folder,
        progress=watcher.moment,
    )
    metrics = validate(algorithm.network, validation, place.device)
    trained = algorithm.network
    context = trained.channels if isinstance(trained, ContextNetwork) else 0
    card = CheckpointCard(
        recipe.network,
        dataset.classes,
        preprocessing,
        recipe.head_bias,
        recipe.norm,
        context,
        dataset.name,
        dataset.splits,
        recipe.sources,
        recipe.seed,
        asdict(recipe),
        metrics,
        tuple(algorithm.heads),
        note,
    )
    heads = {name: head.state_dict() for name, head in algorithm.heads.items()}
    if distributed.is_main_process():
        save_checkpoint(folder / CHECKPOINT_FILE, Checkpoint(card, trained.state_dict(), heads))
    skipped = dict(dataset.skipped)
    unreadable = {
        f"{held.domain.name}/{name}": why
        for held in (*sources, *pictures.values())
        for name, why in held.skipped.items()
    }
    skipped |= unreadable
    return {
        "recipe": asdict(recipe),
        "started_from": origin,
        "note": note,
        "splits": dataset.splits,
        "images": {name: len(domain.examples) for name, domain in dataset.domains.items()},
        "skipped": skipped,
        "unreadable": sorted(unreadable),
        "source_validation": metrics,
        "target_accuracy": {},
        "chosen": outcome["chosen"] + (", adapted to each batch" if algorithm.adapts else ""),
        "seconds": sum(entry["seconds"] for entry in outcome["log"]),
        "seconds_of_this_process": time.perf_counter() - begun,
        "epochs": [
            {k: v for k, v in entry.items() if k not in _IN_THE_LOG} | {"validation": entry["validation"][-1]}
            for entry in outcome["log"]
        ],
        "statistics_variance": outcome["statistics_variance"],
        "environment": _environment(place.device),
    }


def _try_a_step(algorithm: Algorithm, recipe: TrainingRecipe, device: torch.device) -> None:
    """One update of a copy on blank images: whatever the network or the algorithm cannot do shows before the work.

    Raises:
        UnsupportedNetwork: It cannot be trained like that.
    """
    each = images_each(recipe.batch_size, len(recipe.sources))
    blank = torch.zeros(each, 3, recipe.size, recipe.size, device=device)
    labels = torch.zeros(each, dtype=torch.long, device=device)
    batches = [DomainBatch(blank, labels, source) for source in recipe.sources] * algorithm.rounds
    try:
        with torch.random.fork_rng(devices=[]):
            copied = copy.deepcopy(algorithm).train()
            output = copied.network(torch.cat([batch.images for batch in batches[: len(recipe.sources)]]))
            if not isinstance(output, Tensor):
                raise UnsupportedNetwork(f"in train mode it gives {type(output).__name__}, not logits alone")
            copied.update(batches, torch.Generator().manual_seed(0))
    except BadOption:
        raise
    except Exception as error:
        raise UnsupportedNetwork(
            f"{recipe.network} cannot be trained with {recipe.algorithm} at {recipe.size}x{recipe.size}, {each} images "
            f"of each of {len(recipe.sources)} domains a step: {str(error).splitlines()[0]}; choose another --size, "
            "--batch-size or --network"
        ) from error


def _start_network(
    recipe: TrainingRecipe, dataset: DomainDataset, place: TrainingWorkspace
) -> tuple[nn.Module, str, str]:
    """The network to train, where its weights come from, and what must be said of them."""
    plan = find_network(recipe.network)
    network = make_network(
        recipe.network, len(dataset.classes), head_bias=recipe.head_bias, norm=recipe.norm, seed=recipe.seed
    )
    if recipe.weights == "none":
        return network, "random weights", ""
    if recipe.weights == "pretrained":
        found = find_pretrained(plan, place.root)
        load_backbone(network, found.tensors, plan, found.origin)
        return network, found.origin, found.note
    path = place.runs / recipe.weights / CHECKPOINT_FILE
    path = path if path.is_file() else place.start or Path(recipe.weights)
    if is_checkpoint(path):
        return _go_on_from(path, network, recipe, dataset)
    load_backbone(network, read_weights(path), plan, str(path))
    return network, path.name, ""


def _go_on_from(
    path: Path, network: nn.Module, recipe: TrainingRecipe, dataset: DomainDataset
) -> tuple[nn.Module, str, str]:
    """A network that was trained here before: its head is kept where the task is the same."""
    started = load_checkpoint(path)
    card = started.card
    unseen = [source for source in card.sources if source not in recipe.sources]
    if (card.dataset == dataset.name or card.recipe.get("data") == recipe.data) and unseen:
        raise BadOption(
            f"{str(path)!r} was trained on {', '.join(card.sources)}, and {unseen[0]!r} is no source of this run: what "
            "is left out must not have been trained on"
        )
    if (card.network, card.classes, card.head_bias, card.norm, card.context) == (
        recipe.network,
        dataset.classes,
        recipe.head_bias,
        recipe.norm,
        0,
    ):
        load_weights(network, started.tensors, path, dataset.classes)
    else:
        load_backbone(network, dict(started.tensors), find_network(recipe.network), str(path))
    notes = [card.note] if card.note else []
    if card.dataset == dataset.name and card.recipe.get("data") != recipe.data:
        notes.append(
            f"a network trained on another split or other images of {dataset.name}, which may hold validation images"
        )
    # All of them, not this command's targets alone: a later command may test the same weights on another.
    notes += [
        f"{domain} has the name of a domain that the weights this run starts from were trained on, in "
        f"{card.dataset!r}: if they are the same images, this is no test"
        for domain in unseen
        if domain in dataset.domains
    ]
    return network, path.parent.name, "; ".join(notes)


def _preprocessing(recipe: TrainingRecipe) -> Preprocessing:
    """The paper's test pipeline at the recipe's size, with the mean and deviation that the network was trained with."""
    own = find_network(recipe.network).preprocessing
    return replace(squashed(recipe.size, own.mean, own.std), interpolation=own.interpolation)


def _pictures(
    dataset: DomainDataset,
    domain: str,
    preprocessing: Preprocessing,
    place: TrainingWorkspace,
    watcher: TrainingCallbacks,
) -> DomainImages:
    pictures = DomainImages(dataset.domain(domain), preprocessing)
    if place.images is not None:
        pictures.cache(place.images, watcher.preparing)
    return pictures


def _batches(pictures: DomainImages, preprocessing: Preprocessing, part: Split) -> Batches:
    # Shuffled: what adapts to a batch must not find one class in it, as in the order of the files.
    return partial(ordered_batches, pictures, preprocessing, part, 128, seed=0)


def _target_accuracy(
    targets: Sequence[str],
    dataset: DomainDataset,
    place: TrainingWorkspace,
    watcher: TrainingCallbacks,
    preprocessing: Preprocessing,
    weights: Path,
) -> Mapping[str, float]:
    network = load_checkpoint(weights).build(weights).to(place.device).to(memory_format=torch.channels_last)
    tested = {
        target: _batches(_pictures(dataset, target, preprocessing, place, watcher), preprocessing, "test")
        for target in targets
    }
    return validate(network.eval(), tested, place.device)["domains"]  # type: ignore[no-any-return]


def _environment(device: torch.device) -> dict[str, Any]:
    return {
        "domainadaptor": domainadaptor.__version__,
        "commit": revision(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": str(device),
        "threads": torch.get_num_threads(),
        "processes": distributed.world_size(),
        "machine": platform.machine(),
    }


def _read(path: Path) -> dict[str, Any]:
    """The record of a run that was trained before.

    Raises:
        BadFile: It is damaged.
    """
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        record["target_accuracy"].keys(), record["recipe"].keys()
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise BadFile(
            f"{str(path)!r} is damaged ({type(error).__name__}: {error}): expected the record of the run whose weights "
            f"lie beside it. `evaluate` and `predict` take {CHECKPOINT_FILE} as it is; to train it again, to the same "
            "weights and a new record, delete the damaged file"
        ) from error
    return record


def _write(path: Path, record: Mapping[str, Any]) -> None:
    if not distributed.is_main_process():
        return
    with replacing(path) as beside:
        beside.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", encoding="utf-8")
