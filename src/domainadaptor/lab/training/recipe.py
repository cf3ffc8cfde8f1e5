"""TrainingRecipe: everything that decides how a network is trained, and nothing else."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch

from domainadaptor import registry
from domainadaptor.errors import BadOption
from domainadaptor.lab.data.domains import DomainDataset
from domainadaptor.lab.data.seeds import derived_seed
from domainadaptor.lab.files import digest_of
from domainadaptor.lab.networks.loading import is_weights_file
from domainadaptor.lab.networks.zoo import find_network
from domainadaptor.lab.training.algorithm import Algorithm, OptimizerSettings
from domainadaptor.lab.training.selection import make_selection
from domainadaptor.options import check_choice, check_count, check_number, coerce_options, suggestion

ALGORITHMS = "domainadaptor.lab.training.algorithms"
CHECKPOINT_FILE = "checkpoint.safetensors"  # in the folder of a run
_HEADS = 1  # a seed of their own for what is trained besides the network
_LONGEST = 60


@dataclass(frozen=True)
class TrainingRecipe:
    """How one network is trained."""

    dataset: str
    sources: tuple[str, ...]
    data: str = ""  # the data set's fingerprint: other images make another run
    network: str = "resnet18"
    weights: str = "pretrained"  # "pretrained", "none", the name of a file or of a run
    start: str = ""  # digest of that file: other weights make another run
    algorithm: str = "erm"
    options: dict[str, Any] = field(default_factory=dict)  # of the algorithm
    select: str = "best"
    select_options: dict[str, Any] = field(default_factory=dict)
    norm: str = "batch"
    size: int = 224
    epochs: int = 30
    batch_size: int = 128
    lr: float = 1e-3
    head_lr: float = 10.0
    momentum: float = 0.9
    weight_decay: float = 5e-4
    schedule: str = "step"
    warmup: float = 0.0
    head_bias: bool = False
    precision: str = "float32"
    seed: int = 0

    def __post_init__(self) -> None:
        make_selection(self.select, self.select_options)
        check_choice("norm", self.norm, ("batch", "iabn"))
        check_choice("schedule", self.schedule, ("step", "cosine"))
        check_choice("precision", self.precision, ("float32", "bfloat16"))
        check_number("lr", self.lr, low=0, above=True)
        check_number("head_lr", self.head_lr, low=0)
        check_number("momentum", self.momentum, low=0, high=1)
        check_number("weight_decay", self.weight_decay, low=0)
        check_number("warmup", self.warmup, low=0, high=max(self.epochs, 0))
        for name in ("size", "epochs", "batch_size"):
            check_count(name, getattr(self, name), low=1)
        check_count("seed", self.seed, low=0)
        if len(set(self.sources)) < len(self.sources):
            raise BadOption(f"a source domain is named twice: {', '.join(self.sources)}")
        function = find_algorithm(self.algorithm)
        # lr=1 and lr=1.0 are the same run.
        object.__setattr__(self, "options", coerce_options(function, self.options, self.algorithm))

    def make(self, network: Any, classes: int) -> Algorithm:
        """The algorithm for a network."""
        settings = OptimizerSettings(classes, self.lr, self.head_lr, self.momentum, self.weight_decay)
        function = find_algorithm(self.algorithm)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derived_seed(self.seed, _HEADS))
            made = function(network, settings, **self.options)
        assert isinstance(made, Algorithm)
        return made

    def id(self) -> str:
        """A short name that differs where anything in the recipe does.

        Defaults do not count, so that a later version with one more field finds the runs of an earlier one.
        """
        defaults = asdict(TrainingRecipe(self.dataset, self.sources))
        chosen = {name: value for name, value in asdict(self).items() if value != defaults[name]}
        if self.start and is_weights_file(self.weights):
            del chosen["weights"]  # its digest says more than what it is called
        text = json.dumps([self.dataset, self.sources, chosen], sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:10]
        network = self.network.rpartition(":")[2]
        tasks = "".join(f"+{task}" for task in self.options.get("tasks", ()))
        how = f"{self.algorithm}{tasks}" + (f"-{self.select}" if self.select != "best" else "")
        how += f"-{self.norm}" if self.norm != "batch" else ""
        sources = "+".join(self.sources)
        if len(_bytes(sources)) > _LONGEST:  # file systems take 255 bytes; the digest tells runs apart
            sources = f"{len(self.sources)}-domains"
        dataset = _bytes(self.dataset)[:_LONGEST].decode(errors="ignore")
        name = f"{dataset}-{network}-{self.size}-{how}-on-{sources}-seed{self.seed}-{digest}"
        return _bytes(name).decode().replace("/", "_")


def _bytes(name: str) -> bytes:
    """In UTF-8, with ? for what a folder's name may hold and UTF-8 cannot: safetensors opens no other path."""
    return name.encode("utf-8", "replace")


def make_recipe(
    dataset: DomainDataset,
    runs: Path,
    *,
    network: str = "resnet18",
    weights: str = "pretrained",
    size: int | None = None,
    option: Mapping[str, Any] | None = None,
    task: Sequence[str] = (),
    select_option: Mapping[str, Any] | None = None,
    **others: Any,
) -> TrainingRecipe:
    """A recipe from what a user says, without source domains yet.

    Args:
        dataset: The images.
        runs: The folder of earlier runs, any of which may be the start.
        network: As the zoo calls it, or shorter.
        weights: "pretrained", "none", a file, or the name of a run.
        size: Side of the images; the network's own otherwise.
        option: Options of the algorithm.
        task: Tasks beside ERM.
        select_option: Options of the way in which weights are chosen.
        **others: The recipe's own fields.

    Raises:
        BadOption: A field is not known, or has a value that cannot be.
    """
    known = {own.name: own.type for own in fields(TrainingRecipe)}
    for name, value in others.items():
        if name not in known:
            raise BadOption(f"train has no option {name!r}; {suggestion(name, known)}")
        if known[name] is float and isinstance(value, int):
            others[name] = float(value)  # 2 and 2.0 are the same run
    if task and "tasks" in (option or {}):
        raise BadOption(
            f"tasks are said twice: --task {' --task '.join(task)}, and --option tasks={(option or {})['tasks']}; say "
            "them in one way"
        )
    plan = find_network(network)
    start = find_start_weights(weights, runs)
    return TrainingRecipe(
        dataset=dataset.name,
        sources=(),
        data=dataset.fingerprint(),
        network=plan.name,
        weights=_run_or_file(weights, runs),
        start="" if start is None else digest_of(start)[:12],
        size=size or plan.preprocessing.size,
        options=dict(option or {}) | ({"tasks": tuple(task)} if task else {}),
        select_options=dict(select_option or {}),
        **others,
    )


def _run_or_file(weights: str, runs: Path) -> str:
    """A checkpoint of an earlier run by the run's name, another file by its own: both are the same on every machine."""
    path = Path(weights)
    if path.is_file() and path.resolve().is_relative_to(runs.resolve()):
        return path.parent.name
    return path.name if path.is_file() and is_weights_file(path.name) else weights


def find_start_weights(weights: str, runs: Path) -> Path | None:
    """The file that training starts from, by the name of its run or by its path; None where it is none."""
    return next((path for path in (runs / weights / CHECKPOINT_FILE, Path(weights)) if path.is_file()), None)


def find_algorithm(name: str) -> Callable[..., Algorithm]:
    """Return the training algorithm of that name; its keyword-only parameters are the options.

    Raises:
        BadOption: There is none.
    """
    return registry.find(ALGORITHMS, "algorithm", name)
