"""A network with its weights, ready to use."""

from pathlib import Path

from torch import nn

from domainadaptor.networks.weights import classes_in, fit_weights, read_weights
from domainadaptor.networks.zoo import Blueprint


def build_network(blueprint: Blueprint, weights: Path | None, classes: list[str], seed: int) -> tuple[nn.Module, int]:
    """The network with its weights, or random ones, and its number of classes; class names may be left out."""
    count = len(classes) or blueprint.classes
    network = blueprint.build(count, seed)
    if weights is not None:
        tensors = read_weights(weights)
        held = count if classes else classes_in(tensors, network, count)
        if held != count:
            count, network = held, blueprint.build(held, seed)
        fit_weights(network, tensors, weights, classes)
    return network, count
