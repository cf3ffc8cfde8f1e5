"""Extract logits from whatever a network returns, and the rows of them that a loss averages over."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from domainadaptor.errors import UnsupportedNetwork

OutputReader = Callable[[Any], Tensor]
Accepts = Literal["logits", "rows", "anything"]  # one row per image; also pixels and labels; also what has no logits

_MOST_ROWS = 2**16  # pixels of a batch that a loss averages over: more would take much memory
_REMEDY = "Pass output=<a function from the network's output to its logits>."


def read_logits(
    output: object, reader: OutputReader | None, images: int, accepts: Accepts = "logits", multilabel: bool = False
) -> Tensor:
    """Return the logits, (N, K), in a tensor, a tuple, a dict or an object with `.logits`, or by the user's function.

    Where "rows" are accepted, they may be (N, K, H, W). Where "anything" is, an output without (N, K) is returned as it
    is.

    Raises:
        UnsupportedNetwork: There are no logits, or not one row per image and at least two classes.
    """
    try:
        return _checked(logits_in(output) if reader is None else reader(output), images, accepts, multilabel)
    except UnsupportedNetwork:
        if accepts != "anything":
            raise
        return cast(Tensor, output) if reader is None else reader(output)


def rows(logits: Tensor, multilabel: bool) -> Tensor:
    """Return what a loss averages over, (R, K): images, pixels on a regular grid, or labels, whose rows are (0, z).

    Example:
        >>> da.rows(torch.zeros(2, 5, 4, 4), multilabel=False).shape  # one row per pixel
        torch.Size([32, 5])
    """
    if logits.ndim == 4:
        step = math.ceil(math.sqrt(logits[:, 0].numel() / _MOST_ROWS))
        logits = logits[..., ::step, ::step]
    if multilabel:
        return torch.stack([torch.zeros_like(logits), logits], -1).flatten(0, -2)
    return logits if logits.ndim == 2 else logits.movedim(1, -1).flatten(0, -2)


def _checked(logits: object, images: int, accepts: Accepts, multilabel: bool) -> Tensor:
    if not isinstance(logits, Tensor):
        raise UnsupportedNetwork(f"Expected logits from the output function, got a {type(logits).__name__}.")
    if logits.shape[:1] == (images,) and (logits.ndim == 1 or (logits.shape[1] < 2 and not multilabel)):
        raise UnsupportedNetwork(
            "Expected logits of two or more classes, got one. For a sigmoid head pass "
            "output=lambda z: torch.stack([torch.zeros_like(z), z], 1)" + (".flatten(1)." if logits.ndim > 1 else ".")
        )
    if multilabel and accepts == "logits":
        raise UnsupportedNetwork("This method is for one class per image; it cannot be used with multilabel=True.")
    dense = accepts == "rows" and logits.ndim == 4
    if not (dense or logits.ndim == 2) or logits.shape[0] != images or not logits.is_floating_point():
        raise UnsupportedNetwork(
            f"Expected logits of shape ({images}, classes), got {tuple(logits.shape)} {logits.dtype}. {_REMEDY}"
        )
    return logits


def in_loss_precision(logits: Tensor) -> Tensor:
    """Return logits in at least float32, the precision in which losses are computed.

    Example:
        >>> da.in_loss_precision(torch.zeros(1, 2, dtype=torch.float16)).dtype
        torch.float32
    """
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def finite(*outputs: Any) -> bool:
    """Return whether every value of every tensor in the outputs is finite, with one read from the device.

    Example:
        >>> da.finite(torch.zeros(2), torch.tensor(float("nan")))
        False
    """
    flags = [torch.isfinite(tensor).all() for tensor in tree_leaves(outputs) if isinstance(tensor, Tensor)]
    return bool(torch.stack([flag.to(flags[0].device) for flag in flags]).all()) if flags else True


def logits_in(output: object) -> Tensor:
    """Return the logits in what a network returns, without checking their shape."""
    if isinstance(output, Tensor):
        return output
    named = output.get("logits", output.get("out")) if isinstance(output, Mapping) else getattr(output, "logits", None)
    if isinstance(named, Tensor):
        return named
    if isinstance(output, Mapping):
        tensors = [value for value in output.values() if isinstance(value, Tensor)]
        if len(tensors) == 1:
            return tensors[0]
        raise UnsupportedNetwork(
            f"The network returned a dict without 'logits': {', '.join(map(str, output))}. {_REMEDY}"
        )
    if isinstance(output, Sequence) and output and isinstance(output[0], Tensor) and output[0].ndim <= 2:
        return output[0]
    raise UnsupportedNetwork(f"The network returned a {type(output).__name__} without logits. {_REMEDY}")
