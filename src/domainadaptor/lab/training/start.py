"""The network that training starts from."""

from pathlib import Path
from typing import NamedTuple

from torch import nn

from domainadaptor.errors import BadOption
from domainadaptor.lab.data.domains import DomainDataset
from domainadaptor.lab.networks.checkpoint import is_checkpoint, load_checkpoint, make_network
from domainadaptor.lab.networks.pretrained import find_pretrained, load_backbone
from domainadaptor.lab.networks.weights import load_weights, read_weights
from domainadaptor.lab.networks.zoo import find_network
from domainadaptor.lab.training.recipe import TrainingRecipe


class StartNetwork(NamedTuple):
    """The network to train, the origin of its weights, and caveats about them."""

    network: nn.Module
    origin: str
    note: str = ""


def build_start_network(
    recipe: TrainingRecipe, dataset: DomainDataset, root: Path | None, file: Path | None
) -> StartNetwork:
    """Build the network of a recipe with its start weights, from the data root or from the file that it names."""
    spec, classes = find_network(recipe.network), len(dataset.classes)
    network = make_network(recipe.network, classes, head_bias=recipe.head_bias, norm=recipe.norm, seed=recipe.seed)
    if recipe.weights == "none":
        return StartNetwork(network, "random weights")
    if recipe.weights == "pretrained":
        found = find_pretrained(spec, root)
        load_backbone(network, found.tensors, spec, found.origin)
        return StartNetwork(network, found.origin, found.note)
    path = file or Path(recipe.weights)
    if is_checkpoint(path):
        return _from_checkpoint(path, network, recipe, dataset)
    load_backbone(network, read_weights(path), spec, str(path))
    return StartNetwork(network, path.name)


def _from_checkpoint(path: Path, network: nn.Module, recipe: TrainingRecipe, dataset: DomainDataset) -> StartNetwork:
    """Start from a checkpoint; its head is kept if the classes are the same."""
    checkpoint = load_checkpoint(path)
    card = checkpoint.card
    unseen = [source for source in card.sources if source not in recipe.sources]
    same_data = card.recipe.get("data") == recipe.data
    if (card.dataset == dataset.name or same_data) and unseen:
        raise BadOption(
            f"{str(path)!r} was trained on {', '.join(card.sources)}, but {unseen[0]!r} is held out in this run; "
            "start from weights that were not trained on the target domain"
        )
    same_network = (recipe.network, dataset.classes, recipe.head_bias, recipe.norm, 0)
    if (card.network, card.classes, card.head_bias, card.norm, card.context) == same_network:
        load_weights(network, checkpoint.tensors, path, dataset.classes)
    else:
        load_backbone(network, checkpoint.tensors, find_network(recipe.network), str(path))
    notes = [card.note] if card.note else []
    if card.dataset == dataset.name and not same_data:
        notes.append(
            f"the start weights were trained on another split or version of {dataset.name}, which may include "
            "validation images"
        )
    # For all domains, not only this command's targets: a later command may test the same weights on another.
    notes += [
        f"the start weights were trained on a domain named {domain} in {card.dataset!r}: if it has the same images, "
        f"accuracy on {domain} is not held-out accuracy"
        for domain in unseen
        if domain in dataset.domains
    ]
    return StartNetwork(network, path.parent.name, "; ".join(notes))
