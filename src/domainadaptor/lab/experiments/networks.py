"""The networks that experiments adapt: how each is trained, and where its checkpoint is."""

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from os.path import isfile
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from domainadaptor.errors import AdaptationError, BadOption
from domainadaptor.lab.data.domains import DomainDataset
from domainadaptor.lab.data.registry import data_options
from domainadaptor.lab.experiments.file_model import FileModel, Floats, Names
from domainadaptor.lab.networks.inputs import InputOptions, read_classes
from domainadaptor.lab.networks.weights import is_weights_file
from domainadaptor.lab.networks.zoo import find_network
from domainadaptor.lab.records.base import Options
from domainadaptor.lab.records.training import TrainingRequest, TrainingSettings
from domainadaptor.lab.training.recipe import CHECKPOINT_FILE, TrainingRecipe, make_recipe
from domainadaptor.options import suggestion

NOT_TRAINED = "it is not trained yet"
_WAYS = ("train", "checkpoint", "network")
_DERIVED = ("sources", "data", "start", "options", "select_options", "seed")  # not written in a train table


class TrainTable(FileModel, extra="allow"):
    """Options of `domainadaptor train`; the recipe checks the others."""

    dataset: str
    network: str = "resnet18"
    option: Options = {}
    select_option: Options = {}
    task: Names = ()

    @property
    def given(self) -> dict[str, Any]:
        """What the file says, without the data set."""
        return self.model_dump(exclude_unset=True, exclude={"dataset"})

    @property
    def recipe(self) -> dict[str, Any]:
        """The same with the names of the recipe's fields."""
        fields = {k: v for k, v in self.given.items() if k not in ("option", "select_option", "task")}
        options = self.option | ({"tasks": list(self.task)} if self.task else {})
        return {**fields, "options": options, "select_options": self.select_option}

    @model_validator(mode="after")
    def _is_a_recipe(self) -> "TrainTable":
        known = sorted({*TrainingRecipe.model_fields, "option", "select_option", "task"} - {*_DERIVED})
        for name in self.given:
            if name not in known:
                raise BadOption(f"{name!r} is not known; {suggestion(name, known)}")
        data_options(self.dataset)
        find_network(self.network)
        TrainingRecipe(dataset="", **self.recipe)
        return self


Trainings = tuple[tuple[str, float | None], ...]


@dataclass(frozen=True)
class LocatedNetwork:
    """A network that an experiment needs: where it is, or how to get it."""

    label: str  # in the experiment file
    argument: str  # of `evaluate`: the name of a run, a file, or a name of the zoo
    path: Path | None = None  # of its checkpoint
    weights: str | None = None  # for a name of the zoo
    command: str = ""  # that trains it
    missing: str = ""  # why it cannot be used
    trainings: Trainings = ()  # commands that would make it, with the minutes that each was measured to take
    training: TrainingRequest | None = None
    raw: InputOptions = field(default_factory=InputOptions)  # preprocessing and classes given for a file of weights

    def may_be_trained_by(self, training: TrainingRequest | None) -> bool:
        """Return whether a training has the same settings, or either is unknown."""
        return self.training is None or training is None or self.training == training


class NetworkEntry(FileModel):
    """One entry of networks.toml."""

    about: str = ""
    train: TrainTable | None = None
    minutes: Annotated[float, Field(gt=0)] | None = None  # that training one took
    start: str = ""  # the entry whose network training starts from
    sources: Names = ()  # trained on these only; on all but the target otherwise
    checkpoint: str = ""  # a file, with {target} and {seed} where there are several
    network: str = ""  # a name of the zoo
    weights: str = "pretrained"
    size: int | None = None  # how images become the input of weights of the user's own, as on the command line
    resize: int | str | None = None
    crop_pct: float | None = None
    mean: Floats | None = None
    std: Floats | None = None
    classes: str = ""  # a file of names, in the order of the outputs

    @cached_property
    def inputs(self) -> InputOptions:
        """Preprocessing and class names that the file gives."""
        names = tuple(read_classes(Path(self.classes))) if self.classes else ()
        return InputOptions(self.resize, self.size, self.mean, self.std, names, self.classes, self.crop_pct)

    @model_validator(mode="after")
    def _says_where_it_is(self) -> "NetworkEntry":
        ways = [way for way in _WAYS if way in self.model_fields_set]
        if len(ways) != 1:
            raise ValueError(f"expected one of {', '.join(_WAYS)}, got {', '.join(ways) or 'none of them'}")
        check_pattern(self.checkpoint)
        if (given := self.inputs.settings()) and self.train is not None:
            raise ValueError(f"{', '.join(given)}: a network that is trained has its own; write size into train")
        return self

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
            return LocatedNetwork(name, entry.network, weights=entry.weights, raw=entry.inputs)
        if entry.train is None:
            path = Path(_filled(entry.checkpoint, target, seed))
            missing = "" if isfile(path) else f"no checkpoint at {str(path)!r}"
            return LocatedNetwork(name, str(path), path, missing=missing, raw=entry.inputs)
        found = self.describe(name, target, seed)
        given = {**entry.train.given, "seed": seed}
        before: Trainings = ()
        if entry.start:
            start = self.locate(entry.start, target, seed, dataset)
            given["weights"], before = start.argument, start.trainings
            if start.missing and not before:
                return replace(found, missing=start.missing)
        found = replace(found, command=_command(entry.train.dataset, given, target, entry.sources))
        trainings = (*before, (found.command, entry.minutes))
        try:
            opened = dataset(entry.train.dataset)
            if before:
                return replace(found, missing=NOT_TRAINED, trainings=trainings)
            sources = entry.sources or tuple(opened.others(target or ""))
            run = make_recipe(opened, self.runs, **given).replace(sources=sources).id()
        except (AdaptationError, OSError) as error:
            return replace(found, missing=str(error))
        path = self.runs / run / CHECKPOINT_FILE
        if path.is_file():
            return replace(found, argument=run, path=path)
        return replace(found, argument=run, missing=NOT_TRAINED, trainings=trainings)

    def describe(self, name: str, target: str | None, seed: int) -> LocatedNetwork:
        """Return what is known of a network before it is looked for."""
        return LocatedNetwork(name, name, training=self.request(name, target, seed), raw=self.entry(name).inputs)

    def request(self, name: str, target: str | None, seed: int) -> TrainingRequest | None:
        """Return the settings that an entry's network is trained with; None if it is not trained."""
        entry = self.entry(name)
        if entry.train is None:
            return None
        network = find_network(entry.train.network)
        given = {"size": network.preprocessing.size, **entry.train.recipe, "network": network.name, "seed": seed}
        start = self.request(entry.start, target, seed) if entry.start else None
        if entry.start:  # the settings of a trained start say more than the name of its run
            own = self.entry(entry.start)
            given["weights"] = "" if start else own.network or own.checkpoint
        recipe = TrainingRecipe(dataset=entry.train.dataset, sources=entry.sources, **given)
        settings = TrainingSettings.model_validate_json(recipe.model_dump_json())
        return TrainingRequest(settings=settings, target=None if entry.sources else target, start=start)


def start_problems(entries: Mapping[str, NetworkEntry]) -> Iterator[str]:
    """Yield what is wrong with the networks that others start from."""
    for name, entry in entries.items():
        start, seen = entry.start, {""}
        if start and start not in entries:
            yield f"network {name!r}: start = {start!r}: there is no such network; {suggestion(start, entries)}"
        while start in entries and start not in seen:
            seen.add(start)
            start = entries[start].start
        if start and start in seen:
            yield f"network {name!r}: start = {entry.start!r} leads back to itself"


def check_pattern(pattern: str) -> None:
    """Raise BadOption if a checkpoint's path has unknown braces."""
    if {*"{}"} & {*_filled(pattern, "", 0)}:
        raise BadOption(f"{pattern!r}: expected no braces but {{target}} and {{seed}}")


def _filled(pattern: str, target: str | None, seed: int) -> str:
    return pattern.replace("{target}", str(target)).replace("{seed}", str(seed))


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
        for part in pairs if isinstance(pairs, list | tuple) else [pairs]:
            words += [flag, str(part)]
    words += [word for source in sources for word in ("--source", source)]
    return shlex.join(words if sources or target is None else [*words, "--target", target])
