"""An adaptor changes with each batch, so torch cannot trace, export or compile it."""

import sys
from collections.abc import Callable
from typing import Any

import torch

from domainadaptor.errors import UnsupportedNetwork

_is_exporting = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)  # torch 2.5 has the latter alone


def outside_of_graphs(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that torch.compile leaves as it is.

    Raises:
        UnsupportedNetwork: The caller is being exported or traced.
    """
    if torch.jit.is_tracing() or _is_exporting():  # type: ignore[attr-defined]
        raise UnsupportedNetwork(
            "An adaptor changes with each batch, so it cannot be exported or traced. Export or trace "
            "adaptor.adapted_network(images), a plain network, or single_forward(network, method), which adapts to "
            "each batch as auto, adabn and adamixbn do."
        )
    return torch.compiler.disable(function) if "torch._dynamo" in sys.modules else function
