"""Which methods fit a network: found by trying, for messages about a network that a method cannot adapt."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from torch import nn

from domainadaptor import registry
from domainadaptor.catalog import METHODS
from domainadaptor.errors import AdaptationError, UnsupportedNetwork


def with_fitting_methods(
    error: UnsupportedNetwork, network: nn.Module, check: Callable[[Any], object] = lambda adaptor: None
) -> UnsupportedNetwork:
    """Return the error with the names of the methods that need nothing but this network and pass a check.

    Args:
        error: Why one method cannot adapt the network.
        network: The network.
        check: Raises AdaptationError for an adaptor that does not fit.
    """
    names = []
    for name, entry in registry.entries(METHODS).items():
        with suppress(AdaptationError):
            check(entry.load()(network))
            names.append(name)
    return UnsupportedNetwork(f"{error} Methods that fit: {', '.join(names)}.") if names else error
