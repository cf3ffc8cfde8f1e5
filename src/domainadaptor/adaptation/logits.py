"""Extract logits from whatever a network returns."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from domainadaptor.errors import UnsupportedNetwork

OutputReader = Callable[[Any], Tensor]

_REMEDY = "Pass output=<a function from the network's output to its logits>."


def read_logits(output: object, reader: OutputReader | None, images: int) -> Tensor:
    """Return the logits, (N, K), in a tensor, a tuple, a dict or an object with `.logits`, or by the user's function.

    Raises:
        UnsupportedNetwork: There are no logits, or not one row per image and at least two classes.
    """
    logits = _find(output) if reader is None else reader(output)
    if not isinstance(logits, Tensor):
        raise UnsupportedNetwork(f"Expected logits from the output function, got a {type(logits).__name__}.")
    if logits.ndim != 2 or logits.shape[0] != images or not logits.is_floating_point():
        raise UnsupportedNetwork(
            f"Expected logits of shape ({images}, classes), got {tuple(logits.shape)} {logits.dtype}. {_REMEDY}"
        )
    if logits.shape[1] < 2:
        raise UnsupportedNetwork(
            "Expected logits of two or more classes, got one. For a sigmoid head pass "
            "output=lambda z: torch.cat([torch.zeros_like(z), z], 1)."
        )
    return logits


def in_loss_precision(logits: Tensor) -> Tensor:
    """Return logits in at least float32, the precision in which losses are computed."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def finite(*tensors: Tensor) -> bool:
    """Return whether every value of every tensor is finite, with one read from the device."""
    flags = [torch.isfinite(tensor).all() for tensor in tensors]
    return bool(torch.stack([flag.to(flags[0].device) for flag in flags]).all()) if flags else True


def _find(output: object) -> Tensor:
    if isinstance(output, Tensor):
        return output
    named = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    if isinstance(named, Tensor):
        return named
    if isinstance(output, Mapping):
        tensors = [value for value in output.values() if isinstance(value, Tensor)]
        if len(tensors) == 1:
            return tensors[0]
        raise UnsupportedNetwork(
            f"The network returned a dict without 'logits': {', '.join(map(str, output))}. {_REMEDY}"
        )
    if isinstance(output, Sequence) and output and isinstance(output[0], Tensor):
        return output[0]
    raise UnsupportedNetwork(f"The network returned a {type(output).__name__} without logits. {_REMEDY}")
