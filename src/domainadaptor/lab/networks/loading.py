"""A network with its weights, ready to use: by name with weights from a file, or a checkpoint, which knows it all."""

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
    """A network, its classes and its preprocessing, and what must be said of them."""

    network: nn.Module
    name: str
    classes: tuple[str, ...]
    preprocessing: Preprocessing
    trained_at: int | None = None  # the side of the images, where it is known
    notes: tuple[str, ...] = ()
    random: bool = False  # no weights were given
    heads: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)  # trained besides the network
    dataset: str = ""  # that it was trained on, where it is known
    recipe: Mapping[str, Any] = field(default_factory=dict)  # of its training
    sources: tuple[str, ...] = ()  # its domains that were trained on
    file: str = ""  # of raw weights, which say nothing of their preprocessing

    def at(self, size: int | None) -> "LoadedNetwork":
        """The same for another input size, with a note where it was trained at one; None keeps its own."""
        if size is None or size == self.preprocessing.size:
            return self
        notes = self.notes
        if self.trained_at is not None:
            notes += (f"these weights were trained on images of side {self.trained_at}; --size {size} gives others",)
        return replace(self, preprocessing=self.preprocessing.at(size), notes=notes)

    def prepared(self, raw: WeightsOptions) -> "LoadedNetwork":
        """The same with what a user says of raw weights, and a note of how those are given images.

        Raises:
            BadOption: Something is said of weights that know it themselves.
        """
        if not self.file:
            replace(raw, classes=()).check_wanted(self.name)
            return self
        own = raw.applied(self.preprocessing)
        note = (
            f"{self.file} does not say how its images are to be prepared, and is given them so: {own.sentence()}; "
            "--resize, --size, --mean and --std say otherwise"
        )
        return replace(self, preprocessing=own, notes=(*self.notes, note))

    def in_order(self, classes: Sequence[str]) -> "LoadedNetwork":
        """The same with its outputs in the order of these classes, where it has them all under these names.

        The rows of its head change places in the network itself.
        """
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
    """The network of that name, or in that checkpoint, with its weights, in eval mode.

    Args:
        network: A name of the zoo, or a checkpoint file.
        weights: A file, or "pretrained": published weights that are on this machine; None or "none" draws random ones.
        classes: Their names; otherwise those of the published network, or numbers.
        root: The folder that holds the data, for "pretrained".
        seed: Of random weights.

    Raises:
        BadOption: The network is not known, or weights or classes are given for a checkpoint.
        BadFile: A file is missing, damaged, or does not fit.
    """
    if is_weights_file(network):
        return _from_checkpoint(Path(network), weights, classes)
    plan = find_network(network)
    if weights is None or weights == "none":
        names = tuple(classes) or _numbers(plan.classes)
        return LoadedNetwork(plan.build(len(names), seed), plan.name, names, plan.preprocessing, random=True)
    if weights == "pretrained":
        return _published(plan, classes, root)
    return _from_file(plan, Path(weights), classes)


def _from_checkpoint(path: Path, weights: str | None, classes: Sequence[str]) -> LoadedNetwork:
    if path.name.lower().endswith(PICKLED):
        raise BadOption(f"{str(path)!r} holds weights only: name the network, and say --weights {path.name}")
    for option, given in (("--weights", weights), ("--classes", classes)):
        if given:
            raise BadOption(f"{path.name} is a checkpoint, which has its own weights and classes: leave out {option}")
    checkpoint = load_checkpoint(path)
    card = checkpoint.card
    notes = [card.note] if card.note else []
    usual, own = find_network(card.network).preprocessing, card.preprocessing
    if (usual.mean, usual.std, usual.interpolation) != (own.mean, own.std, own.interpolation):
        notes.append(
            f"{path.name} was trained with other preprocessing than {card.network} usually has, and is given its own "
            f"({own.sentence()}) instead of the usual ({usual.sentence()})"
        )
    return LoadedNetwork(
        checkpoint.build(path),
        card.network,
        card.classes,
        own,
        own.size,
        tuple(notes),
        heads=checkpoint.heads,
        dataset=card.dataset,
        recipe=card.recipe,
        sources=card.sources,
    )


def _published(plan: NetworkSpec, classes: Sequence[str], root: Path | None) -> LoadedNetwork:
    found = find_pretrained(plan, root)
    names = tuple(classes) or found.classes
    network = plan.build(len(names))
    load_weights(network, found.tensors, Path(found.origin), names)
    own = found.preprocessing
    return LoadedNetwork(network, plan.name, names, own, own.size, (found.note,) if found.note else ())


def _from_file(plan: NetworkSpec, path: Path, classes: Sequence[str]) -> LoadedNetwork:
    if path.is_file() and is_checkpoint(path):
        raise BadOption(
            f"{str(path)!r} is a checkpoint, which knows its network, classes and preprocessing: "
            "give it in place of the network's name, without --weights"
        )
    tensors = read_weights(path)
    network = plan.build(len(classes) or plan.classes)
    names = tuple(classes)
    notes: tuple[str, ...] = ()
    if not names:
        held = count_classes(tensors, network, plan.head_tensors()) or plan.classes
        names = _numbers(held)
        if held != plan.classes:
            network = plan.build(held)
        elif held == len(imagenet_classes()):
            names = imagenet_classes()
            notes = (f"{path.name} has {held} outputs, taken for the classes of ImageNet; --classes names others",)
    if _only_the_bias_is_missing(tensors, network, plan):
        remove_head_bias(network, len(names))
        notes += (f"{path.name} has a head without bias",)
    load_weights(network, tensors, path, names)
    usual = plan.by_file.get(path.name, plan.preprocessing)
    return LoadedNetwork(network, plan.name, names, usual, notes=notes, file=path.name)


def _only_the_bias_is_missing(tensors: Mapping[str, Tensor], network: nn.Module, plan: NetworkSpec) -> bool:
    own = network.state_dict()
    given = match_names(tensors, own)
    missing = [name for name in own if name not in given and not name.endswith("num_batches_tracked")]
    return len(missing) == 1 and missing[0] in plan.head_tensors() and missing[0].endswith("bias")


def _numbers(count: int) -> tuple[str, ...]:
    return tuple(str(number) for number in range(count))
