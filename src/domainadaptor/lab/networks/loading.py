"""Networks with their weights, ready to use: a checkpoint, or a name with weights from a file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from domainadaptor.errors import BadOption
from domainadaptor.lab.data.locate import fold
from domainadaptor.lab.data.preprocessing import Preprocessing
from domainadaptor.lab.networks.checkpoint import is_checkpoint, load_checkpoint
from domainadaptor.lab.networks.heads import remove_head_bias
from domainadaptor.lab.networks.pretrained import find_pretrained, imagenet_classes
from domainadaptor.lab.networks.weights import (
    PICKLED,
    WeightsOptions,
    count_classes,
    is_weights_file,
    load_tensors,
    load_weights,
    match_names,
    read_weights,
)
from domainadaptor.lab.networks.zoo import NetworkSpec, find_network


@dataclass(frozen=True)
class LoadedNetwork:
    """A network with its classes and its preprocessing."""

    network: nn.Module
    name: str
    classes: tuple[str, ...]
    preprocessing: Preprocessing
    trained_at: int | None = None  # side of the training images, if known
    notes: tuple[str, ...] = ()  # caveats to show with every result
    random: bool = False  # no weights were given
    heads: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)  # trained besides the network
    dataset: str = ""  # it was trained on, if known
    recipe: Mapping[str, Any] = field(default_factory=dict)  # it was trained with
    sources: tuple[str, ...] = ()  # domains it was trained on
    file: str = ""  # third-party weights file, which does not include preprocessing

    def with_size(self, size: int | None) -> "LoadedNetwork":
        """Return the same for another input size, with a note if the training size is known; None changes nothing."""
        if size is None or size == self.preprocessing.size:
            return self
        notes = self.notes
        if self.trained_at is not None:
            notes += (f"these weights were trained on images of side {self.trained_at}, not --size {size}",)
        return replace(self, preprocessing=self.preprocessing.at(size), notes=notes)

    def with_options(self, options: WeightsOptions) -> "LoadedNetwork":
        """Return the same with the user's options for third-party weights, and a note on the preprocessing."""
        if not self.file:
            replace(options, classes=()).refuse(self.name)
            return self
        own = options.apply_to(self.preprocessing)
        note = (
            f"{self.file} does not include preprocessing; using {own.sentence()}. Third-party weights usually need "
            "their own preprocessing: pass --resize, --size, --mean and --std"
        )
        return replace(self, preprocessing=own, notes=(*self.notes, note))

    def with_class_order(self, classes: Sequence[str]) -> "LoadedNetwork":
        """Return the same with its outputs, in place, in the order of these classes, if it has the same classes."""
        own = {fold(name): at for at, name in enumerate(self.classes)}
        wanted = [own.get(fold(name)) for name in classes]
        if self.classes == tuple(classes) or len(own) != len(wanted) or None in wanted:
            return self
        state = self.network.state_dict()
        rows = torch.tensor(wanted)
        head = {name: state[name][rows] for name in find_network(self.name).head_tensors() if name in state}
        load_tensors(self.network, {**state, **head})
        return replace(self, classes=tuple(classes))


def load_network(
    network: str, weights: str | None, classes: Sequence[str] = (), root: Path | None = None, seed: int = 0
) -> LoadedNetwork:
    """Load a network in eval mode.

    Args:
        network: The name of a network, or a checkpoint file.
        weights: A file, or "pretrained" for published weights on this machine; None or "none" for random weights.
        classes: Class names. Default: those of the published network, or numbers.
        root: Folder of data sets and published weights.
        seed: Seed of random weights.
    """
    if is_weights_file(network):
        return _from_checkpoint(Path(network), weights, classes)
    spec = find_network(network)
    if weights is None or weights == "none":
        names = tuple(classes) or _numbers(spec.classes)
        return LoadedNetwork(spec.build(len(names), seed), spec.name, names, spec.preprocessing, random=True)
    if weights != "pretrained":
        return _from_file(spec, Path(weights), classes)
    found = find_pretrained(spec, root)
    names = tuple(classes) or found.classes
    built = spec.build(len(names))
    load_weights(built, found.tensors, Path(found.origin), names)
    own = found.preprocessing
    return LoadedNetwork(built, spec.name, names, own, own.size, (found.note,) if found.note else ())


def _from_checkpoint(path: Path, weights: str | None, classes: Sequence[str]) -> LoadedNetwork:
    if path.name.lower().endswith(PICKLED):
        raise BadOption(f"{str(path)!r} holds weights only. Pass the network's name and --weights {path.name}")
    for option, given in (("--weights", weights), ("--classes", classes)):
        if given:
            raise BadOption(f"{path.name} is a checkpoint, which includes weights and classes: leave out {option}")
    checkpoint = load_checkpoint(path)
    card = checkpoint.card
    notes = [card.note] if card.note else []
    usual, own = find_network(card.network).preprocessing, card.preprocessing
    if (usual.mean, usual.std, usual.interpolation) != (own.mean, own.std, own.interpolation):
        notes.append(
            f"{path.name} was trained with different preprocessing from the default of {card.network}; using its own "
            f"({own.sentence()}) instead of the default ({usual.sentence()})"
        )
    loaded = LoadedNetwork(checkpoint.build(path), card.network, card.classes, own, own.size, tuple(notes))
    return replace(loaded, heads=checkpoint.heads, dataset=card.dataset, recipe=card.recipe, sources=card.sources)


def _from_file(spec: NetworkSpec, path: Path, classes: Sequence[str]) -> LoadedNetwork:
    if path.is_file() and is_checkpoint(path):
        raise BadOption(
            f"{str(path)!r} is a checkpoint, which includes its network, classes and preprocessing. Pass it instead of "
            "the network's name, without --weights"
        )
    tensors = read_weights(path)
    network, names, notes = spec.build(len(classes) or spec.classes), tuple(classes), []
    if not names:
        held = count_classes(tensors, network, spec.head_tensors()) or spec.classes
        names = _numbers(held)
        if held != spec.classes:
            network = spec.build(held)
        elif held == len(imagenet_classes()):
            names = imagenet_classes()
            notes.append(f"{path.name} has {held} outputs: assuming the classes of ImageNet; pass --classes for others")
    given = match_names(tensors, own := network.state_dict())
    missing = [name for name in own if name not in given and not name.endswith("num_batches_tracked")]
    if len(missing) == 1 and missing[0] in spec.head_tensors() and missing[0].endswith("bias"):
        remove_head_bias(network, len(names))
        notes.append(f"{path.name} has a head without bias")
    load_weights(network, tensors, path, names)
    usual = spec.by_file.get(path.name, spec.preprocessing)
    return LoadedNetwork(network, spec.name, names, usual, notes=tuple(notes), file=path.name)


def _numbers(count: int) -> tuple[str, ...]:
    return tuple(str(number) for number in range(count))
