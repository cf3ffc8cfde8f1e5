"""The networks that experiments adapt: how each is trained, and where it lies when it was."""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from domainadaptor.errors import AdaptationError, BadOption
from domainadaptor.lab.data.domains import DomainDataset
from domainadaptor.lab.data.registry import data_options, datasets
from domainadaptor.lab.experiments import kinds
from domainadaptor.lab.networks.loading import is_weights_file
from domainadaptor.lab.networks.weights import WeightsOptions
from domainadaptor.lab.networks.zoo import find_network
from domainadaptor.lab.training.recipe import CHECKPOINT_FILE, TrainingRecipe, make_recipe
from domainadaptor.options import suggestion

_UNKNOWN = ""  # the name of a run that only data would tell
_WAYS = ("train", "checkpoint", "network")
_KEYS = {
    "train": kinds.TABLE,
    "checkpoint": kinds.TEXT,
    "network": kinds.TEXT,
    "about": kinds.TEXT,
    "start": kinds.TEXT,
    "sources": kinds.NAMES,
    "weights": kinds.TEXT,
    "milliseconds": kinds.NUMBER,
}
_TYPES = {str: kinds.TEXT, int: kinds.COUNT, float: kinds.NUMBER, bool: kinds.FLAG}
# Fields of a recipe that the experiment decides, or that are said by another name.
_FOLLOWS = ("sources", "data", "start", "options", "select_options", "seed")
_TOGETHER = (("algorithm", "options"), ("select", "select_options"), ("epochs", "warmup"))  # what one says of the other
_TRAIN = {own.name: _TYPES[own.type] for own in fields(TrainingRecipe) if own.name not in _FOLLOWS} | {  # type: ignore[index]
    "option": kinds.OPTIONS,
    "select_option": kinds.OPTIONS,
    "task": kinds.NAMES,
}


@dataclass(frozen=True)
class Located:
    """A network that an experiment wants: where it is, or how to get it."""

    label: str  # in the file of experiments
    argument: str  # of `evaluate`: the name of a run, a file, or a name of the zoo
    path: Path | None = None  # of its checkpoint
    weights: str | None = None  # for a name of the zoo
    command: str = ""  # that makes it
    missing: str = ""  # why it cannot be used; "" if it can
    training: str = ""  # the command that trains this very network; "" if nothing is known of it
    raw: WeightsOptions = field(default_factory=WeightsOptions)  # what is said of weights in a file

    def is_trained_by(self, command: str) -> bool:
        """Whether a command trains it too, in whatever order its options stand; where one is not known, it may."""
        if not self.training or not command:
            return True
        own, others = _options(self.training), _options(command)
        if ["--weights", _UNKNOWN] in own:
            own, others = ([option for option in one if option[0] != "--weights"] for one in (own, others))
        return own == others


@dataclass(frozen=True)
class NetworkPlan:
    """One entry of a file of networks."""

    name: str
    about: str = ""
    train: Mapping[str, Any] | None = None  # as the options of `domainadaptor train`, and its data set
    start: str = ""  # the plan of the network that training starts from
    sources: tuple[str, ...] = ()  # trained on these alone; on all but the target otherwise
    checkpoint: str = ""  # a file, with {target} and {seed} in it where there are several
    network: str = ""  # a name of the zoo
    weights: str = "pretrained"
    milliseconds: float = 0.0  # of plain inference an image, measured once: for estimates

    def depends_on_target(self) -> bool:
        """Whether there is a network for each domain that was left out."""
        return (self.train is not None and not self.sources) or "{target}" in self.checkpoint


@dataclass(frozen=True)
class Networks:
    """All plans of a file, and where trained networks lie."""

    plans: Mapping[str, NetworkPlan]
    runs: Path
    given: Mapping[str, str] = field(default_factory=dict)  # plan -> a user's own checkpoint pattern

    def plan(self, name: str) -> NetworkPlan:
        """The plan of that name.

        Raises:
            BadOption: There is none.
        """
        if name not in self.plans:
            raise BadOption(f"there is no network {name!r} in networks.toml; {suggestion(name, self.plans)}")
        plan = self.plans[name]
        if name in self.given:
            return NetworkPlan(name, plan.about, checkpoint=self.given[name], milliseconds=plan.milliseconds)
        return plan

    def locate(self, name: str, target: str | None, seed: int, dataset: Callable[[str], DomainDataset]) -> Located:
        """The network of that name that never saw the target."""
        plan = self.plan(name)
        if plan.depends_on_target() and target is None:
            return Located(name, name, missing=f"{name!r} is another network for each target; choose columns by domain")
        if plan.network:
            return Located(name, plan.network, weights=plan.weights)
        if plan.checkpoint:
            path = Path(plan.checkpoint.format(target=target, seed=seed))
            missing = "" if path.is_file() else f"no checkpoint at {str(path)!r}"
            return Located(name, str(path), path, missing=missing)
        return self._trained(plan, target, seed, dataset)

    def _trained(
        self, plan: NetworkPlan, target: str | None, seed: int, dataset: Callable[[str], DomainDataset]
    ) -> Located:
        assert plan.train is not None
        said = {key: value for key, value in plan.train.items() if key != "dataset"} | {"seed": seed}
        start = self.locate(plan.start, target, seed, dataset) if plan.start else None
        if start is not None:
            # Without data a run has no name yet, and is called as its plan is.
            said["weights"] = _UNKNOWN if start.missing and start.argument == start.label else start.argument
        command = _command(plan.train["dataset"], said, target, plan.sources)
        if start is not None and start.missing:
            return Located(plan.name, plan.name, command=start.command, missing=start.missing, training=command)
        try:
            opened = dataset(plan.train["dataset"])
            sources = plan.sources or tuple(opened.others(target or ""))
            recipe = replace(make_recipe(opened, self.runs, **said), sources=sources)
        except AdaptationError as error:
            return Located(plan.name, plan.name, command=command, missing=str(error), training=command)
        path = self.runs / recipe.id() / CHECKPOINT_FILE
        missing = "" if path.is_file() else "it is not trained yet"
        return Located(plan.name, recipe.id(), path, command=command, missing=missing, training=command)


def read_plans(entries: Mapping[str, Any], mistakes: list[str]) -> dict[str, NetworkPlan]:
    """Plans from a file's tables; what is wrong with them goes to the list."""
    plans = {}
    for name, entry in entries.items():
        where = f"network {name!r}"
        if not isinstance(entry, dict):
            mistakes.append(f"{where}: expected a table, got {entry!r}")
            continue
        ways = [way for way in _WAYS if way in entry]
        wrong = kinds.wrong_kinds(entry, _KEYS)
        if len(ways) != 1:
            wrong.append(f"expected one of {', '.join(_WAYS)}, got {', '.join(ways) or 'none of them'}")
        if isinstance(entry.get("train"), dict):
            wrong += _wrong_training(entry["train"])
        if not wrong and "checkpoint" in entry:
            wrong += [text for text in [pattern_mistake(entry["checkpoint"])] if text]
        mistakes += [f"{where}: {text}" for text in wrong]
        if not wrong:
            plans[name] = NetworkPlan(name, **entry | {"sources": tuple(entry.get("sources", ()))})
    for name, entry in entries.items():
        start = entry.get("start") if isinstance(entry, dict) else None
        if isinstance(start, str) and start not in entries:
            mistakes.append(f"network {name!r} starts from {start!r}; {suggestion(start, entries)}")
        elif _comes_back(name, plans):
            mistakes.append(f"network {name!r} starts from {start!r}, which leads back to itself")
    return plans


def pattern_mistake(pattern: str) -> str:
    """What is wrong with the place of a checkpoint; "" if nothing is."""
    try:
        pattern.format(target="", seed=0)
    except (LookupError, ValueError, AttributeError):
        return f"{pattern!r}: expected nothing but {{target}} and {{seed}} in braces"
    return ""


def _wrong_training(train: Mapping[str, Any]) -> list[str]:
    wrong = kinds.wrong_kinds(train, _TRAIN)
    if "dataset" not in train:
        wrong.append("its train has no dataset")
    said = {name: value for name, value in train.items() if name in _TRAIN and kinds.fits(value, _TRAIN[name])}
    options = dict(said.pop("option", {})) | ({"tasks": tuple(tasks)} if (tasks := said.pop("task", ())) else {})
    said |= {"options": options, "select_options": dict(said.pop("select_option", {}))}
    checks: list[Callable[[], object]] = [
        partial(data_options, said.pop("dataset", "folders")),
        partial(find_network, said.get("network", "resnet18")),
    ]
    alone = [name for name in said if not any(name in together for together in _TOGETHER)]
    for names in (*_TOGETHER, *((name,) for name in alone)):
        checks.append(partial(TrainingRecipe, "", (), **{name: said[name] for name in names if name in said}))
    for check in checks:  # one by one, so that all mistakes are said at once
        try:
            check()
        except BadOption as error:
            wrong.append(str(error))
    return wrong


def _comes_back(name: str, plans: Mapping[str, NetworkPlan]) -> bool:
    seen: list[str] = []
    while name in plans and name not in seen:
        seen.append(name)
        name = plans[name].start
    return name in seen


def named_run(argument: str, runs: Path) -> str:
    """The checkpoint of a run that is called by its name; anything else as it is."""
    path = runs / argument / CHECKPOINT_FILE
    return str(path) if not is_weights_file(argument) and path.is_file() else argument


def training_command(recipe: Mapping[str, Any]) -> str:
    """What trains a network by its recipe again; "" where a checkpoint has none."""
    if not recipe or not recipe.get("sources"):
        return ""
    usual = {own.name: own.default for own in fields(TrainingRecipe)}
    said = {
        name: value for name, value in recipe.items() if name in usual and name not in _FOLLOWS and value != usual[name]
    }
    options = dict(recipe.get("options") or {})
    said |= {"task": list(options.pop("tasks"))} if "tasks" in options else {}
    said |= {"option": options} if options else {}
    said |= {"select_option": recipe["select_options"]} if recipe.get("select_options") else {}
    name = str(said.pop("dataset", ""))
    return _command(name if name in datasets() else "folders", said | {"seed": recipe.get("seed", 0)}, None,
                    tuple(recipe["sources"]))  # fmt: skip


def _options(command: str) -> list[list[str]]:
    """What a command begins with, and its options, each with its value, sorted."""
    found: list[list[str]] = [["command"]]
    for word in shlex.split(command):
        if word.startswith("--"):
            found.append([])
        found[-1].append(word)
    return sorted(found)


def _command(dataset: str, said: Mapping[str, Any], target: str | None, sources: tuple[str, ...]) -> str:
    words = ["domainadaptor", "train", dataset]
    for key, value in said.items():
        flag = f"--{key.replace('_', '-')}"
        if isinstance(value, Mapping):
            for option, setting in value.items():
                words += [flag, f"{option}={setting}"]
        elif isinstance(value, bool):
            words += [flag if value else f"--no-{flag[2:]}"]
        elif isinstance(value, list):
            for part in value:
                words += [flag, str(part)]
        else:
            words += [flag, str(value)]
    for source in sources:
        words += ["--source", source]
    if not sources and target is not None:
        words += ["--target", target]
    return shlex.join(words)
