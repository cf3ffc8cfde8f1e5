"""The training recipe: everything that decides how a network is trained, and nothing else."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, ValidationError
from torch import nn

from domainadaptor import registry
from domainadaptor.errors import BadOption
from domainadaptor.lab.data.domains import DomainDataset
from domainadaptor.lab.data.seeds import derived_seed
from domainadaptor.lab.files import digest_of
from domainadaptor.lab.networks.checkpoint import Norm
from domainadaptor.lab.networks.weights import is_weights_file
from domainadaptor.lab.networks.zoo import find_network
from domainadaptor.lab.records.training import TrainingSettings
from domainadaptor.lab.training.algorithm import Algorithm, OptimizerSettings
from domainadaptor.lab.training.selection import find_selection
from domainadaptor.options import coerce_options, suggestion

ALGORITHMS = "domainadaptor.lab.training.algorithms"
CHECKPOINT_FILE = "checkpoint.safetensors"  # in the folder of a run
_HEADS_SEED = 1  # derives the seed of what is trained besides the network
_MAX_NAME_BYTES = 60

Whole = Annotated[int, Field(ge=1, lt=2**63)]
NotNegative = Annotated[float, Field(ge=0)]


class TrainingRecipe(TrainingSettings):
    """How one network is trained: the settings of a record with defaults, bounds and registered names."""

    network: str = "resnet18"
    weights: str = "pretrained"
    algorithm: str = "erm"
    select: str = "best"
    norm: Norm = "batch"
    size: Whole = 224
    epochs: Whole = 30
    batch_size: Whole = 128
    lr: Annotated[float, Field(gt=0)] = 1e-3
    head_lr: NotNegative = 10.0
    momentum: Annotated[float, Field(ge=0, le=1)] = 0.9
    weight_decay: NotNegative = 5e-4
    schedule: Literal["step", "cosine"] = "step"
    warmup: NotNegative = 0.0
    head_bias: bool = False
    precision: Literal["float32", "bfloat16"] = "float32"
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0

    def __init__(self, **values: Any) -> None:
        """Validate the values; raise BadOption if one is wrong, or an algorithm or selection is not registered."""
        algorithm, select = values.get("algorithm", "erm"), values.get("select", "best")
        for field, function, name in (
            ("options", find_algorithm(algorithm), algorithm),
            ("select_options", find_selection(select), select),
        ):
            typed = coerce_options(function, values.get(field, {}), name)
            values[field] = {key: list(own) if isinstance(own, tuple) else own for key, own in typed.items()}
        try:
            super().__init__(**values)
        except ValidationError as error:
            wrong = [(".".join(map(str, d["loc"])), d["input"], d["msg"]) for d in error.errors(include_url=False)]
            raise BadOption("; ".join(f"{where}={value!r}: {why}" for where, value, why in wrong)) from None
        if len(set(self.sources)) < len(self.sources):
            raise BadOption(f"Source domain given twice: {', '.join(self.sources)}")
        if self.warmup > self.epochs:
            raise BadOption(f"warmup={self.warmup:g}: expected at most the number of epochs, {self.epochs}")

    def replace(self, **changes: Any) -> "TrainingRecipe":
        """Return a copy with other values, validated."""
        return TrainingRecipe(**{name: getattr(self, name) for name in type(self).model_fields} | changes)

    def make_algorithm(self, network: nn.Module, classes: int) -> Algorithm:
        """Build the algorithm for a network."""
        settings = OptimizerSettings(classes, self.lr, self.head_lr, self.momentum, self.weight_decay)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derived_seed(self.seed, _HEADS_SEED))
            return find_algorithm(self.algorithm)(network, settings, **self.options)

    def id(self) -> str:
        """Return a short name that differs wherever the recipe does.

        Defaults are left out, so that a version with more fields finds the runs of an earlier one.
        """
        values = self.model_dump(mode="json")
        chosen = {
            name: values[name]
            for name, field in type(self).model_fields.items()
            if name not in ("dataset", "sources") and values[name] != field.default
        }
        if self.start and is_weights_file(self.weights):
            chosen.pop("weights", None)  # the digest identifies the file, whatever its name
        text = json.dumps([self.dataset, self.sources, chosen], sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:10]
        network = self.network.rpartition(":")[2]
        tasks = "".join(f"+{task}" for task in self.options.get("tasks") or ())  # type: ignore[union-attr]
        how = f"{self.algorithm}{tasks}" + (f"-{self.select}" if self.select != "best" else "")
        how += f"-{self.norm}" if self.norm != "batch" else ""
        sources = "+".join(self.sources)
        if len(_utf8(sources)) > _MAX_NAME_BYTES:  # file systems allow 255 bytes; the digest tells runs apart
            sources = f"{len(self.sources)}-domains"
        dataset = _utf8(self.dataset)[:_MAX_NAME_BYTES].decode(errors="ignore")
        name = f"{dataset}-{network}-{self.size}-{how}-on-{sources}-seed{self.seed}-{digest}"
        return _utf8(name).decode().replace("/", "_")


def _utf8(name: str) -> bytes:
    """Encode a name, with ? for what UTF-8 cannot encode: safetensors opens no other path."""
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
    """Make a recipe from the options of `train`, without source domains yet.

    The folder of earlier runs is for `weights` that name one; the default size is the network's.
    """
    if unknown := [name for name in others if name not in TrainingRecipe.model_fields]:
        raise BadOption(f"train has no option {unknown[0]!r}; {suggestion(unknown[0], TrainingRecipe.model_fields)}")
    if task and "tasks" in (option or {}):
        raise BadOption("Tasks given twice (--task and --option tasks=); use one")
    spec, start, path = find_network(network), find_start_weights(weights, runs), Path(weights)
    if path.is_file() and path.resolve().is_relative_to(runs.resolve()):
        weights = path.parent.name  # the name of a run or a file is the same on every machine
    elif path.is_file() and is_weights_file(path.name):
        weights = path.name
    return TrainingRecipe(
        dataset=dataset.name,
        data=dataset.fingerprint(),
        network=spec.name,
        weights=weights,
        start="" if start is None else digest_of(start)[:12],
        size=size or spec.preprocessing.size,
        options=dict(option or {}) | ({"tasks": list(task)} if task else {}),
        select_options=dict(select_option or {}),
        **others,
    )


def find_start_weights(weights: str, runs: Path) -> Path | None:
    """Return the file that training starts from, given a run's name or a path; None if there is no such file."""
    return next((path for path in (runs / weights / CHECKPOINT_FILE, Path(weights)) if path.is_file()), None)


def find_algorithm(name: str, *, allow_import: bool = False) -> Callable[..., Algorithm]:
    """Return a training algorithm by name; its keyword-only parameters are the options.

    With `allow_import`, for names that the user typed, "package.module:function" is also accepted.
    """
    return registry.find(ALGORITHMS, "algorithm", name, allow_import=allow_import)
