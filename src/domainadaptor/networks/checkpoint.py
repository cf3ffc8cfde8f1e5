"""Checkpoints: one safetensors file with a network's weights and all that is needed to use them again."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from domainadaptor.data.preprocessing import Preprocessing
from domainadaptor.errors import BadFile
from domainadaptor.files import replacing
from domainadaptor.networks.context import ContextNetwork
from domainadaptor.networks.heads import remove_head_bias
from domainadaptor.networks.weights import fit_weights
from domainadaptor.networks.zoo import blueprint
from domainadaptor.norms.instance_aware import make_instance_aware

_ENTRY = "domainadaptor"
_FORMAT = 1
_HEADS = "heads."


@dataclass(frozen=True)
class Card:
    """What a checkpoint says of itself."""

    network: str  # as the zoo calls it
    classes: tuple[str, ...]
    preprocessing: Preprocessing
    head_bias: bool = True
    norm: str = "batch"  # or "iabn"
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

    card: Card
    tensors: Mapping[str, Tensor]
    heads: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)

    def build(self, where: Path = Path("the checkpoint")) -> nn.Module:
        """The network with its weights, in eval mode.

        Raises:
            BadFile: They do not fit the network that the card names.
        """
        card = self.card
        network = make_network(card.network, len(card.classes), head_bias=card.head_bias, norm=card.norm)
        if card.context:
            network = ContextNetwork(network, card.context)
        fit_weights(network, self.tensors, where, card.classes)
        return network.eval()


def make_network(name: str, classes: int, *, head_bias: bool, norm: str, seed: int = 0) -> nn.Module:
    """A network of the zoo with a head for so many classes, random weights and the norm layers asked for."""
    network = blueprint(name).build(classes, seed)
    if not head_bias:
        remove_head_bias(network, classes)
    if norm == "iabn":
        make_instance_aware(network)
    return network


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Writes it whole or not at all."""
    tensors = dict(checkpoint.tensors)
    for head, parts in checkpoint.heads.items():
        tensors |= {f"{_HEADS}{head}.{name}": tensor for name, tensor in parts.items()}
    card = asdict(checkpoint.card) | {"format": _FORMAT}
    with replacing(path) as beside:
        save_file(
            {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()},
            beside,
            metadata={_ENTRY: json.dumps(card)},
        )


def is_checkpoint(path: Path) -> bool:
    """Whether it is a file that `save_checkpoint` wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            return _ENTRY in (file.metadata() or {})
    except (SafetensorError, OSError, FileNotFoundError):
        return False


def load_checkpoint(path: Path) -> Checkpoint:
    """A checkpoint, checked.

    Raises:
        BadFile: It is missing, damaged, or not one of ours.
    """
    if not path.is_file():
        raise BadFile(f"no checkpoint at {str(path)!r}: expected a .safetensors file that `domainadaptor train` wrote")
    try:
        with safe_open(path, framework="pt") as file:
            entry = (file.metadata() or {}).get(_ENTRY)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise BadFile(f"{str(path)!r} is not a whole safetensors file: {error}") from error
    if entry is None:
        raise BadFile(
            f"{str(path)!r} holds weights only, not what they are for; say which network: NETWORK --weights {path.name}"
        )
    card = _read_card(entry, path)
    heads: dict[str, dict[str, Tensor]] = {head: {} for head in card.heads}
    for name in [name for name in tensors if name.startswith(_HEADS)]:
        head, _, part = name.removeprefix(_HEADS).partition(".")
        if head not in heads:
            raise BadFile(f"{str(path)!r} has tensors of a head {head!r} that its card does not list")
        heads[head][part] = tensors.pop(name)
    empty = [head for head, parts in heads.items() if not parts]
    if empty:
        raise BadFile(f"{str(path)!r} lists the head {empty[0]!r} but has no tensors of it; the file is damaged")
    return Checkpoint(card, tensors, heads)


def _read_card(text: str, path: Path) -> Card:
    try:
        entry = json.loads(text)
        if entry.pop("format") != _FORMAT:
            raise BadFile(f"{str(path)!r} was written by another version of this package; install that, or train again")
        entry["preprocessing"] = Preprocessing(**{k: _tupled(v) for k, v in entry["preprocessing"].items()})
        card = Card(**{name: _tupled(value) for name, value in entry.items()})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        if isinstance(error, BadFile):
            raise
        raise BadFile(f"{str(path)!r} has a card that cannot be read ({error}); the file is damaged") from error
    if len(card.classes) < 2 or len(set(card.classes)) != len(card.classes):
        raise BadFile(f"{str(path)!r}: expected two or more different classes, got {list(card.classes)}")
    return card


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
