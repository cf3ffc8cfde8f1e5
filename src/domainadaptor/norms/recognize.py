"""Which layers of a network are batch norms that can be adapted, and which are left as they are, and why."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import parametrize

from domainadaptor.errors import UnsupportedNetwork


class _Forward(NamedTuple):
    """How a class of norm layers computes."""

    native: bool  # by the batch_norm kernel, else x * scale + shift in the layer's own precision
    tail: tuple[str, ...] = ()  # what the layer applies after normalizing


# By the name of the class that defines `forward`: a subclass that does not override it counts as its parent, and
# neither timm nor torchvision has to be imported.
_KNOWN = {
    "torch.nn.modules.batchnorm._BatchNorm": _Forward(native=True),
    "torch.nn.modules.batchnorm.SyncBatchNorm": _Forward(native=True),
    "torchvision.ops.misc.FrozenBatchNorm2d": _Forward(native=False),
    "timm.layers.norm_act.FrozenBatchNorm2d": _Forward(native=False),
    "timm.layers.norm_act.BatchNormAct2d": _Forward(native=True, tail=("drop", "act")),
    "timm.layers.norm_act.SyncBatchNormAct": _Forward(native=True, tail=("drop", "act")),
    "timm.layers.norm_act.FrozenBatchNormAct2d": _Forward(native=False, tail=("drop", "act")),
}

# Layers whose own forward is known to be something else, and what to do about it.
_OTHERWISE = {
    "domainadaptor.norms.instance_aware.InstanceAwareBatchNorm2d": (
        "has a forward of its own that corrects each image already: use the method note, which is made for it, or "
        "source, or a network that was trained with --norm batch"
    )
}


@dataclass(frozen=True)
class SourceNorm:
    """A trained batch norm layer: its statistics, scale and shift, and how it computes."""

    layer: nn.Module
    mean: Tensor
    var: Tensor
    weight: Tensor | None
    bias: Tensor | None
    eps: float
    native: bool
    tail: tuple[nn.Module, ...]


def find_norms(network: nn.Module, required: bool = True) -> tuple[dict[str, SourceNorm], dict[str, str]]:
    """The layers that can be adapted, and the norm layers that cannot with the reason; by name.

    Args:
        network: Where to look.
        required: Whether a network without any is refused.

    Raises:
        UnsupportedNetwork: A batch norm has no running statistics, or unusable ones, or there is nothing to adapt.
    """
    adaptable: dict[str, SourceNorm] = {}
    left: dict[str, str] = {}
    for name, module in network.named_modules():
        seen = _look_at(name, module)
        if isinstance(seen, SourceNorm):
            adaptable[name] = seen
        elif seen is not None:
            left[name] = seen
    if required and not adaptable:
        raise UnsupportedNetwork(_nothing_to_adapt(network, left))
    return adaptable, left


def _look_at(name: str, module: nn.Module) -> SourceNorm | str | None:
    if not _is_batch_norm(module):
        return None
    kind = type(module).__name__
    if parametrize.is_parametrized(module):
        return f"{kind} computes its tensors by a parametrization"
    own_call = type(module).__call__ is not nn.Module.__call__
    owner = None if own_call or "forward" in vars(module) else _owner_of_forward(type(module))
    full = "" if owner is None else f"{owner.__module__}.{owner.__qualname__}"
    known = _KNOWN.get(full)
    if known is None:
        return f"{kind} {_OTHERWISE.get(full, 'has a forward of its own that is not known')}"
    tensors = {**module._parameters, **module._buffers}
    if "weight" not in tensors or "bias" not in tensors:
        return f"{kind} computes its scale or shift by a hook (pruning, weight norm)"
    mean, var = tensors.get("running_mean"), tensors.get("running_var")
    _check_statistics(name or kind, mean, var)
    assert mean is not None
    assert var is not None
    return SourceNorm(
        layer=module,
        mean=mean,
        var=var,
        weight=tensors["weight"],
        bias=tensors["bias"],
        eps=float(module.eps),  # type: ignore[arg-type]
        native=known.native,
        tail=tuple(module._modules[part] for part in known.tail if module._modules.get(part) is not None),  # type: ignore[misc]
    )


def _is_batch_norm(module: nn.Module) -> bool:
    """A batch norm of torch, or something else that carries running statistics."""
    return isinstance(module, _BatchNorm) or {"running_mean", "running_var"} <= {
        name for name, buffer in module._buffers.items() if buffer is not None
    }


def _owner_of_forward(kind: type) -> type:
    return next(parent for parent in kind.__mro__ if "forward" in vars(parent))


def _check_statistics(name: str, mean: Tensor | None, var: Tensor | None) -> None:
    if mean is None or var is None:
        raise UnsupportedNetwork(
            f"layer {name!r} has no running statistics (track_running_stats=False), and they are what adaptation "
            "starts from; train it with track_running_stats=True, or estimate them by running training images "
            "through the network in train mode"
        )
    if not bool(torch.isfinite(mean).all()) or not bool((torch.isfinite(var) & (var >= 0)).all()):
        raise UnsupportedNetwork(
            f"layer {name!r} has running statistics that are not finite, or a negative variance; "
            "expected those of a trained network: check the weights"
        )


def _nothing_to_adapt(network: nn.Module, left: dict[str, str]) -> str:
    kind = type(network).__name__
    if left:
        layers: dict[str, list[str]] = {}
        for name, why in left.items():
            layers.setdefault(why, []).append(name)
        reasons = "; ".join(f"{why} ({_some(names)})" for why, names in layers.items())
        return f"{kind} has no norm layer that can be adapted: {reasons}"
    others = sorted({type(m).__name__ for m in network.modules() if "norm" in type(m).__name__.lower()})
    instead = f"its norm layers are {', '.join(others)}" if others else "it has no norm layers at all"
    return (
        f"nothing to adapt: {kind} has no batch normalization ({instead}). "
        "This method mixes batch statistics; use a network with batch normalization that was not fused away"
    )


def _some(names: list[str]) -> str:
    return ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
