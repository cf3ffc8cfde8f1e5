"""The networks that experiments adapt: how each is trained, and where its checkpoint is."""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from domainadaptor.errors import AdaptationError
from domainadaptor.lab.data.domains import DomainDataset
from domainadaptor.lab.data.registry import data_options
from domainadaptor.lab.experiments.file_model import FileModel, Names, problem_of
from domainadaptor.lab.networks.inputs import InputOptions
from domainadaptor.lab.networks.weights import is_weights_file
from domainadaptor.lab.networks.zoo import find_network
from domainadaptor.lab.records.base import Options
from domainadaptor.lab.records.training import TrainingRequest, TrainingSettings
from domainadaptor.lab.training.recipe import CHECKPOINT_FILE, TrainingRecipe, make_recipe
from domainadaptor.options import suggestion

_WAYS = ("train", "checkpoint", "network")
_DERIVED = ("sources", "data", "start", "options", "select_options", "seed")  # not written in a train table
_TOGETHER = (("algorithm", "options"), ("select", "select_options"), ("epochs", "warmup"))  # checked together


class _TrainTable(FileModel, extra="allow"):
    """Options of `domainadaptor train`; the recipe checks the others."""

    dataset: str = ""
    network: str = "resnet18"
    option: Options = {}
    select_option: Options = {}
    task: Names = ()


@dataclass(frozen=True)
class LocatedNetwork:
    """A network that an experiment needs: where it is, or how to get it."""

    label: str  # in the experiment file
    argument: str  # of `evaluate`: the name of a run, a file, or a name of the zoo
    path: Path | None = None  # of its checkpoint
    weights: str | None = None  # for a name of the zoo
    command: str = ""  # that makes it
    missing: str = ""  # why it cannot be used
    training: TrainingRequest | None = None
    raw: InputOptions = field(default_factory=InputOptions)  # preprocessing and classes given for a file of weights

    def may_be_trained_by(self, training: TrainingRequest | None) -> bool:
        """Return whether a training has the same settings, or either is unknown."""
        return self.training is None or training is None or self.training == training


class NetworkEntry(FileModel):
    """One entry of networks.toml."""

    about: str = ""
    train: dict[str, Any] | None = None  # the options of `domainadaptor train`, and its data set
    start: str = ""  # the entry whose network training starts from
    sources: Names = ()  # trained on these only; on all but the target otherwise
    checkpoint: str = ""  # a file, with {target} and {seed} where there are several
    network: str = ""  # a name of the zoo
    weights: str = "pretrained"

    def depends_on_target(self) -> bool:
        """Return whether there is one network per held-out domain."""
        return (self.train is not None and not self.sources) or "{target}" in self.checkpoint


@dataclass(frozen=True)
class Networks:
    """All entries, and where trained networks are."""

    entries: Mapping[str, NetworkEntry]
    runs: Path
    given: Mapping[str, str] = field(default_factory=dict)  # entry -> the user's own checkpoint pattern

    def entry(self, name: str) -> NetworkEntry:
        """Return an entry; with the user's checkpoint, if one is given for it."""
        own = self.entries[name]
        if name in self.given:
            return NetworkEntry(about=own.about, checkpoint=self.given[name])
        return own

    def locate(
        self, name: str, target: str | None, seed: int, dataset: Callable[[str], DomainDataset]
    ) -> LocatedNetwork:
        """Return the network of that name that never saw the target."""
        entry = self.entry(name)
        if entry.depends_on_target() and target is None:
            why = f"{name!r} is a different network for each target; choose columns by domain"
            return LocatedNetwork(name, name, missing=why)
        if entry.network:
            return LocatedNetwork(name, entry.network, weights=entry.weights)
        if entry.train is None:
            path = Path(entry.checkpoint.format(target=target, seed=seed))
            missing = "" if path.is_file() else f"no checkpoint at {str(path)!r}"
            return LocatedNetwork(name, str(path), path, missing=missing)
        found = LocatedNetwork(name, name, training=self.request(name, target, seed))
        given = {**entry.train, "seed": seed}
        kind = given.pop("dataset")
        if entry.start:
            start = self.locate(entry.start, target, seed, dataset)
            if start.missing:
                return replace(found, command=start.command, missing=start.missing)
            given["weights"] = start.argument
        found = replace(found, command=_command(kind, given, target, entry.sources))
        try:
            opened = dataset(kind)
            sources = entry.sources or tuple(opened.others(target or ""))
            run = make_recipe(opened, self.runs, **given).replace(sources=sources).id()
        except AdaptationError as error:
            return replace(found, missing=str(error))
        path = self.runs / run / CHECKPOINT_FILE
        return replace(found, argument=run, path=path, missing="" if path.is_file() else "it is not trained yet")

    def request(self, name: str, target: str | None, seed: int) -> TrainingRequest | None:
        """Return the settings that an entry's network is trained with; None if it is not trained."""
        entry = self.entry(name)
        if entry.train is None:
            return None
        given = _recipe_fields(entry.train)
        network = find_network(given.pop("network", "resnet18"))
        given = {"size": network.preprocessing.size, "seed": seed, **given}
        start = self.request(entry.start, target, seed) if entry.start else None
        if entry.start:  # the settings of a trained start say more than the name of its run
            own = self.entry(entry.start)
            given["weights"] = "" if start else own.network or own.checkpoint
        recipe = TrainingRecipe(sources=entry.sources, network=network.name, **given)
        settings = TrainingSettings.model_validate_json(recipe.model_dump_json())
        return TrainingRequest(settings=settings, target=None if entry.sources else target, start=start)


def read_networks(tables: Mapping[str, Any], problems: list[str]) -> dict[str, NetworkEntry]:
    """Return the entries of a file; what is wrong with them is added to the problems."""
    entries = {}
    for name, table in tables.items():
        if not isinstance(table, dict):
            problems.append(f"network {name!r} = {table!r}: expected a table")
            continue
        wrong: list[str] = []
        entries[name] = entry = NetworkEntry.read(table, wrong)
        ways = [way for way in _WAYS if way in table]
        if len(ways) != 1:
            wrong.append(f"expected one of {', '.join(_WAYS)}, got {', '.join(ways) or 'none of them'}")
        if entry.train is not None:
            wrong += _training_problems(entry.train)
        if entry.checkpoint:
            wrong += pattern_problems(entry.checkpoint)
        if entry.start and entry.start not in tables:
            wrong.append(f"start = {entry.start!r}: there is no such network; {suggestion(entry.start, tables)}")
        problems += [f"network {name!r}: {text}" for text in wrong]
    for name, entry in entries.items():
        start, seen = entry.start, {""}
        while start in entries and start not in seen:
            seen.add(start)
            start = entries[start].start
        if start and start in seen:
            problems.append(f"network {name!r}: start = {entry.start!r} leads back to itself")
    return entries


def pattern_problems(pattern: str) -> list[str]:
    """Return what is wrong with the path of a checkpoint."""
    try:
        pattern.format(target="", seed=0)
    except (LookupError, ValueError, AttributeError):
        return [f"{pattern!r}: expected no braces but {{target}} and {{seed}}"]
    return []


def _training_problems(train: Mapping[str, Any]) -> list[str]:
    wrong = [] if "dataset" in train else ["train has no dataset"]
    valid = _TrainTable.read(train, wrong).model_dump(exclude_unset=True)
    known = sorted({*TrainingRecipe.model_fields, "option", "select_option", "task"} - {*_DERIVED})
    wrong += [f"{name!r} is not known; {suggestion(name, known)}" for name in valid if name not in known]
    given = _recipe_fields({name: value for name, value in valid.items() if name in known})
    wrong += problem_of(data_options, given.pop("dataset", "folders"))
    wrong += problem_of(find_network, given.get("network", "resnet18"))
    alone = [(name,) for name in given if not any(name in names for names in _TOGETHER)]
    for names in (*_TOGETHER, *alone):  # one by one, to report all problems at once
        wrong += problem_of(TrainingRecipe, dataset="", **{name: given[name] for name in names if name in given})
    return wrong


def _recipe_fields(train: Mapping[str, Any]) -> dict[str, Any]:
    """Return a train table with the names of the recipe's fields."""
    given = dict(train)
    tasks = list(given.pop("task", ()))
    given["options"] = dict(given.pop("option", {})) | ({"tasks": tasks} if tasks else {})
    given["select_options"] = dict(given.pop("select_option", {}))
    return given


def named_run(argument: str, runs: Path) -> str:
    """Return the checkpoint of a run that is given by its name; anything else as it is."""
    path = runs / argument / CHECKPOINT_FILE
    return str(path) if not is_weights_file(argument) and path.is_file() else argument


def _command(dataset: str, given: Mapping[str, Any], target: str | None, sources: tuple[str, ...]) -> str:
    words = ["domainadaptor", "train", dataset]
    for name, value in given.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{flag[2:]}")
            continue
        pairs = [f"{option}={setting}" for option, setting in value.items()] if isinstance(value, Mapping) else value
        for part in pairs if isinstance(pairs, list) else [pairs]:
            words += [flag, str(part)]
    words += [word for source in sources for word in ("--source", source)]
    return shlex.join(words if sources or target is None else [*words, "--target", target])
