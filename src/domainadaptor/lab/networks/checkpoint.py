"""Checkpoints: one safetensors file with a network's weights and all that is needed to use them again."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from domainadaptor import method_info
from domainadaptor.errors import BadFile, BadOption
from domainadaptor.lab.data.preprocessing import INTERPOLATIONS, Preprocessing
from domainadaptor.lab.files import replacing
from domainadaptor.lab.networks.context import ContextNetwork
from domainadaptor.lab.networks.heads import remove_head_bias
from domainadaptor.lab.networks.weights import EXTRA_HEADS, check_values, count_classes, join_names, load_weights
from domainadaptor.lab.networks.zoo import find_network
from domainadaptor.norms.instance_aware import make_instance_aware
from domainadaptor.options import check_choice

NORMS = ("batch", "iabn")
_ENTRY = "domainadaptor"
_FORMAT = 1
_EDITED = "the file is damaged or its card was edited: take it as it was written, or train again"


@dataclass(frozen=True)
class CheckpointCard:
    """What a checkpoint says of itself; sequences in recipe and metrics come back as tuples."""

    network: str  # as the zoo calls it
    classes: tuple[str, ...]
    preprocessing: Preprocessing
    head_bias: bool = True
    norm: str = "batch"  # one of NORMS
    context: int = 0  # channels that a context network adds to the images
    dataset: str = ""
    splits: str = ""
    sources: tuple[str, ...] = ()
    seed: int = 0
    recipe: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    heads: tuple[str, ...] = ()  # trained besides the network
    note: str = ""  # what must be said wherever a number rests on these weights


@dataclass(frozen=True)
class Checkpoint:
    """A card, the network's tensors, and those of each extra head."""

    card: CheckpointCard
    tensors: Mapping[str, Tensor]
    heads: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)

    def build(self, where: Path = Path("the checkpoint")) -> nn.Module:
        """The network with its weights, in eval mode.

        Raises:
            BadFile: They do not fit the network that the card names.
        """
        card = self.card
        network = make_network(card.network, len(card.classes), head_bias=card.head_bias, norm=card.norm)
        head = find_network(card.network).head_tensors()
        if card.context:
            network = ContextNetwork(network, card.context)
            head = tuple(f"network.{name}" for name in head)
        held = count_classes(self.tensors, network, head)
        if held not in (None, len(card.classes)):
            raise BadFile(
                f"{str(where)!r}: the card lists {len(card.classes)} classes ({join_names(card.classes)}), but the "
                f"weights predict {held}; {_EDITED}"
            )
        load_weights(network, self.tensors, where)
        return network.eval()

    def options_for(self, method: str) -> dict[str, Mapping[str, Tensor]]:
        """What the checkpoint holds that a method needs: adapt(network, method, **checkpoint.options_for(method))."""
        return heads_for(method, self.heads)


def heads_for(method: str, heads: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Mapping[str, Tensor]]:
    """Those trained heads that a method has an option for, by the option: "task" takes the head of its own name."""
    name = method.rpartition(":")[2].replace("_", "-")
    wanted = {"task": name, "learned_loss": "learned_loss"}
    options = method_info(method).defaults
    return {option: heads[head] for option, head in wanted.items() if option in options and head in heads}


def make_network(name: str, classes: int, *, head_bias: bool, norm: str, seed: int = 0) -> nn.Module:
    """A network of the zoo with a head for so many classes, random weights and the norm layers asked for.

    Raises:
        BadOption: The network or the norm is not known.
        UnsupportedNetwork: Its head or its norm layers are not of a kind that can be changed so.
    """
    check_choice("norm", norm, NORMS)
    network = find_network(name).build(classes, seed)
    if not head_bias:
        remove_head_bias(network, classes)
    if norm == "iabn":
        make_instance_aware(network)
    return network


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Writes it whole or not at all.

    Raises:
        BadFile: It cannot be written there.
        BadOption: A head is called like a part of the network, so that their tensors could not be told apart.
    """
    tensors = dict(checkpoint.tensors)
    for head, parts in checkpoint.heads.items():
        clash = [name for name in tensors if name.startswith(f"{EXTRA_HEADS}{head}.")]
        if clash:
            raise BadOption(f"a head cannot be called {head!r}: the network has a tensor {clash[0]!r}")
        tensors |= {f"{EXTRA_HEADS}{head}.{name}": tensor for name, tensor in parts.items()}
    _check_card(checkpoint.card, path)
    card = asdict(checkpoint.card) | {"format": _FORMAT}
    with replacing(path) as beside:
        try:
            save_file(
                {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()},
                beside,
                metadata={_ENTRY: json.dumps(card)},
            )
        except SafetensorError as error:  # its name for a full disk, or a folder that is not there
            raise BadFile(f"cannot write {str(path)!r}: {error}; choose another place") from error


def is_checkpoint(path: Path) -> bool:
    """Whether it is a file that `save_checkpoint` wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            return _ENTRY in (file.metadata() or {})
    except (SafetensorError, OSError):
        return False


def load_checkpoint(path: str | Path) -> Checkpoint:
    """A checkpoint, checked.

    Raises:
        BadFile: It is missing, damaged, or not one of ours.
    """
    path = Path(path)
    if not path.is_file():
        raise BadFile(f"no checkpoint at {str(path)!r}: expected a .safetensors file that `domainadaptor train` wrote")
    try:
        with safe_open(path, framework="pt") as file:
            entry = (file.metadata() or {}).get(_ENTRY)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise BadFile(
            f"{str(path)!r} is not a whole safetensors file ({error}); copy it again, or train again"
        ) from error
    if entry is None:
        raise BadFile(
            f"{str(path)!r} holds weights only, not what they are for; say which network: NETWORK --weights {path.name}"
        )
    card = _read_card(entry, path)
    heads: dict[str, dict[str, Tensor]] = {head: {} for head in card.heads}
    for name in [name for name in tensors if name.startswith(EXTRA_HEADS)]:
        head, _, part = name.removeprefix(EXTRA_HEADS).partition(".")
        if head in heads:  # what is left is the network's own: torchvision's transformers call their head so
            heads[head][part] = tensors.pop(name)
    empty = [head for head, parts in heads.items() if not parts]
    if empty:
        raise BadFile(f"{str(path)!r}: its card lists the head {empty[0]!r}, but it has no tensors of it; {_EDITED}")
    for parts in heads.values():
        check_values(parts, path)
    return Checkpoint(card, tensors, heads)


def _read_card(text: str, path: Path) -> CheckpointCard:
    try:
        entry = json.loads(text)
        version = entry.pop("format")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadFile(f"{str(path)!r} has a card that cannot be read ({error!r}); {_EDITED}") from error
    if version != _FORMAT:
        raise BadFile(
            f"{str(path)!r}: expected a checkpoint of format {_FORMAT}, got {version!r}; "
            "install the version of this package that wrote it, or train again"
        )
    try:
        entry["preprocessing"] = Preprocessing(**_tupled(entry["preprocessing"]))
        card = CheckpointCard(**_tupled(entry))
    except (TypeError, KeyError) as error:
        raise BadFile(f"{str(path)!r} has a card with entries missing or unknown ({error}); {_EDITED}") from error
    _check_card(card, path)
    return card


def _check_card(card: CheckpointCard, path: Path) -> None:
    seen = card.preprocessing
    words = {name: getattr(card, name) for name in ("network", "dataset", "splits", "note")}
    expected: dict[str, tuple[object, str, bool]] = {
        "classes": (card.classes, "two or more different names", _different(card.classes) and len(card.classes) > 1),
        "heads": (card.heads, "different names", _different(card.heads)),
        "sources": (card.sources, "different names", _different(card.sources)),
        **{name: (value, "text", isinstance(value, str)) for name, value in words.items()},
        "norm": (card.norm, f"one of {', '.join(NORMS)}", card.norm in NORMS),
        "head_bias": (card.head_bias, "true or false", isinstance(card.head_bias, bool)),
        "seed": (card.seed, "a whole number", isinstance(card.seed, int)),
        "context": (card.context, "a number of channels", isinstance(card.context, int) and card.context >= 0),
        "recipe": (card.recipe, "named values", isinstance(card.recipe, dict)),
        "metrics": (card.metrics, "named values", isinstance(card.metrics, dict)),
        "size": (seen.size, "a number of pixels", isinstance(seen.size, int) and seen.size > 0),
        "resize": (seen.resize, "pixels, no less than the size", isinstance(seen.resize, int)),
        "mean": (seen.mean, "three numbers", _three(seen.mean)),
        "std": (seen.std, "three numbers above 0", _three(seen.std) and min(seen.std) > 0),
        "interpolation": (
            seen.interpolation,
            f"one of {', '.join(INTERPOLATIONS)}",
            seen.interpolation in INTERPOLATIONS,
        ),
        "squash": (seen.squash, "true or false", isinstance(seen.squash, bool)),
    }
    for name, (value, what, fine) in expected.items():
        if not fine:
            raise BadFile(f"{str(path)!r}: expected {what} as {name!r} of its card, got {value!r}; {_EDITED}")
    twice = {name: getattr(card, name) for name in ("network", "norm", "seed", "sources", "head_bias", "dataset")}
    for name, value in {**twice, "size": seen.size}.items():
        if card.recipe.get(name, value) != value:
            raise BadFile(
                f"{str(path)!r}: its card says {value!r} as {name!r}, but its recipe {card.recipe[name]!r}; {_EDITED}"
            )
    if seen.resize < seen.size:
        raise BadFile(f"{str(path)!r}: its card resizes to {seen.resize} and crops {seen.size} of that; {_EDITED}")
    try:
        find_network(card.network)
    except BadOption as error:
        raise BadFile(
            f"{str(path)!r} is of a network that is not known here: {error}; "
            "install the versions of torchvision and timm that it was trained with"
        ) from error


def _different(names: object) -> bool:
    """Whether these are names, none of them twice."""
    return isinstance(names, tuple) and all(isinstance(n, str) for n in names) and len(set(names)) == len(names)


def _three(numbers: object) -> bool:
    return (
        isinstance(numbers, tuple)
        and len(numbers) == 3
        and all(isinstance(n, int | float) and math.isfinite(n) for n in numbers)
    )


def _tupled(value: Any) -> Any:
    """The same with tuples for lists: JSON has one kind of sequence, and cards do not change."""
    if isinstance(value, dict):
        return {name: _tupled(inner) for name, inner in value.items()}
    return tuple(map(_tupled, value)) if isinstance(value, list) else value
