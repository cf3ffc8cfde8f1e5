"""Checkpoints: one safetensors file with a network's weights and everything needed to use them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Field, JsonValue, TypeAdapter, ValidationError, field_validator
from pydantic.dataclasses import dataclass as validated
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from domainadaptor import method_info
from domainadaptor.errors import BadFile, BadOption
from domainadaptor.lab.data.preprocessing import Preprocessing
from domainadaptor.lab.files import replacing
from domainadaptor.lab.networks.context import ContextNetwork
from domainadaptor.lab.networks.heads import remove_head_bias
from domainadaptor.lab.networks.weights import EXTRA_HEADS, check_outline, check_values, load_weights
from domainadaptor.lab.networks.zoo import NetworkSpec, find_network, huggingface_network
from domainadaptor.lab.records.base import summary
from domainadaptor.norms.instance_aware import make_instance_aware
from domainadaptor.options import check_choice

Norm = Literal["batch", "iabn"]
_ENTRY = "domainadaptor"
_FORMAT = 1
_EDITED = "the file is corrupt or was edited: restore it, or train again"


@validated(frozen=True, config=ConfigDict(strict=True, extra="forbid", allow_inf_nan=False))
class CheckpointCard:
    """Metadata of a checkpoint."""

    network: str  # with its library: "torchvision:resnet18"
    classes: Annotated[tuple[str, ...], Field(min_length=2)]
    preprocessing: Preprocessing
    head_bias: bool = True
    norm: Norm = "batch"
    context: Annotated[int, Field(ge=0, le=64)] = 0  # channels that a context network adds to the images
    dataset: str = ""
    splits: str = ""
    sources: tuple[str, ...] = ()
    seed: int = 0
    recipe: dict[str, JsonValue] = Field(default_factory=dict)
    metrics: dict[str, JsonValue] = Field(default_factory=dict)
    heads: tuple[str, ...] = ()  # trained besides the network
    note: str = ""  # a caveat for every number that depends on these weights
    config: dict[str, JsonValue] = Field(default_factory=dict)  # of a Hugging Face model
    calibration: dict[str, JsonValue] = Field(default_factory=dict)  # the images and the network that it comes from

    @field_validator("classes", "heads", "sources")
    @classmethod
    def _check_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(names)) < len(names):
            raise ValueError(f"expected different names, got {', '.join(names)}")
        return names

    def spec(self) -> NetworkSpec:
        """Return the network that the card names."""
        return huggingface_network(self.config) if self.config else find_network(self.network)


_CARD = TypeAdapter(CheckpointCard)


@dataclass(frozen=True)
class Checkpoint:
    """A card, the network's tensors, and those of each extra head."""

    card: CheckpointCard
    tensors: Mapping[str, Tensor]
    heads: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)

    def build(self, where: Path = Path("the checkpoint")) -> nn.Module:
        """Return the network with its weights, in eval mode."""
        card = self.card
        spec = card.spec()
        if card.config:
            check_outline(spec.outline(len(card.classes)), self.tensors, where)
        network = make_network(spec, len(card.classes), head_bias=card.head_bias, norm=card.norm)
        if card.context:
            network = ContextNetwork(network, card.context)
        load_weights(network, self.tensors, where, card.classes)
        return network.eval()

    def options_for(self, method: str) -> dict[str, Mapping[str, Tensor]]:
        """Return the trained heads that a method needs: adapt(network, method, **checkpoint.options_for(method))."""
        return heads_for(method, self.heads)


def heads_for(method: str, heads: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Mapping[str, Tensor]]:
    """Return the trained heads a method has an option for, by option; "task" takes the head named as the method."""
    name = method.rpartition(":")[2].replace("_", "-")
    wanted = {"task": name, "learned_loss": "learned_loss"}
    options = method_info(method).defaults
    return {option: heads[head] for option, head in wanted.items() if option in options and head in heads}


def make_network(network: str | NetworkSpec, classes: int, *, head_bias: bool, norm: str, seed: int = 0) -> nn.Module:
    """Build a network with random weights, a head for the given number of classes, and the given norm layers."""
    check_choice("norm", norm, get_args(Norm))
    spec = find_network(network) if isinstance(network, str) else network
    built = spec.build(classes, seed)
    if not head_bias:
        remove_head_bias(built, classes)
    if norm == "iabn":
        make_instance_aware(built)
    return built


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint atomically."""
    tensors = dict(checkpoint.tensors)
    for head, parts in checkpoint.heads.items():
        if clash := [name for name in tensors if name.startswith(f"{EXTRA_HEADS}{head}.")]:
            raise BadOption(f"a head cannot be called {head!r}: the network has a tensor {clash[0]!r}")
        tensors |= {f"{EXTRA_HEADS}{head}.{name}": tensor for name, tensor in parts.items()}
    card = _CARD.dump_python(checkpoint.card, mode="json") | {"format": _FORMAT}
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    with replacing(path) as temporary:
        try:
            save_file(tensors, temporary, metadata={_ENTRY: json.dumps(card)})
        except SafetensorError as error:  # a full disk, or a missing folder
            raise BadFile(f"cannot write {str(path)!r}: {error}; choose another place") from error


def is_checkpoint(path: Path) -> bool:
    """Return whether `save_checkpoint` wrote this file."""
    try:
        with safe_open(path, framework="pt") as file:
            return _ENTRY in (file.metadata() or {})
    except (SafetensorError, OSError):
        return False


def load_checkpoint(path: str | Path) -> Checkpoint:
    """Read and validate a checkpoint."""
    path = Path(path)
    if not path.is_file():
        raise BadFile(f"no checkpoint at {str(path)!r}: expected a .safetensors file that `domainadaptor train` wrote")
    try:
        with safe_open(path, framework="pt") as file:
            entry = (file.metadata() or {}).get(_ENTRY)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise BadFile(f"{str(path)!r} is not a complete safetensors file ({error}); copy or train it again") from error
    if entry is None:
        raise BadFile(f"{str(path)!r} holds weights only. Pass the network's name and --weights {path.name}")
    card = _read_card(entry, path)
    heads: dict[str, dict[str, Tensor]] = {head: {} for head in card.heads}
    for name in [name for name in tensors if name.startswith(EXTRA_HEADS)]:
        head, _, part = name.removeprefix(EXTRA_HEADS).partition(".")
        if head in heads:  # the others are the network's: torchvision's transformers call their head so
            heads[head][part] = tensors.pop(name)
    if empty := [head for head, parts in heads.items() if not parts]:
        raise BadFile(f"{str(path)!r}: the card lists the head {empty[0]!r}, but there are no tensors of it; {_EDITED}")
    for parts in heads.values():
        check_values(parts, path)
    return Checkpoint(card, tensors, heads)


def _read_card(text: str, path: Path) -> CheckpointCard:
    try:
        entry: dict[str, Any] = json.loads(text)
        version = entry.pop("format")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadFile(f"{str(path)!r}: the card cannot be read ({error!r}); {_EDITED}") from error
    if version != _FORMAT:
        raise BadFile(
            f"{str(path)!r}: expected a checkpoint of format {_FORMAT}, got {version!r}; "
            "install the version of this package that wrote it, or train again"
        )
    try:
        card = _CARD.validate_json(json.dumps(entry))  # JSON lists become tuples
        card.spec()
    except ValidationError as error:
        raise BadFile(f"{str(path)!r}: invalid card: {summary(error)}; {_EDITED}") from error
    except BadOption as error:
        hint = "install the versions of torchvision and timm that it was trained with"
        raise BadFile(f"{str(path)!r}: the network is not available: {error}; {hint}") from error
    return card
