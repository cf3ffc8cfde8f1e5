"""Find the batch norm layers that can be adapted, and say why others cannot."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import parametrize

from domainadaptor.errors import UnsupportedNetwork, listed


class _Forward(NamedTuple):
    """How a class of norm layers computes."""

    native: bool  # with the batch_norm kernel; otherwise x * scale + shift in the layer's precision
    tail: tuple[str, ...] = ()  # children that the layer applies after normalizing


# By the name of the class that defines `forward`, so that subclasses without their own forward count as well and
# neither timm nor torchvision is imported.
_KNOWN = {
    "torch.nn.modules.batchnorm._BatchNorm": _Forward(native=True),
    "torch.nn.modules.batchnorm.SyncBatchNorm": _Forward(native=True),
    "torchvision.ops.misc.FrozenBatchNorm2d": _Forward(native=False),
    "timm.layers.norm_act.FrozenBatchNorm2d": _Forward(native=False),
    "timm.layers.norm_act.BatchNormAct2d": _Forward(native=True, tail=("drop", "act")),
    "timm.layers.norm_act.SyncBatchNormAct": _Forward(native=True, tail=("drop", "act")),
    "timm.layers.norm_act.FrozenBatchNormAct2d": _Forward(native=False, tail=("drop", "act")),
}

# Layers that are known not to be replaceable, and what to do about it.
_KNOWN_OTHERS = {
    "domainadaptor.norms.instance_aware.InstanceAwareBatchNorm2d": (
        "corrects each image in its own forward: use the method note, which is made for it, or source, or a network "
        "that was trained with --norm batch"
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
    """Return the layers that can be adapted by name, and name -> reason for the batch norms that cannot.

    Args:
        network: The network.
        required: Whether to raise if no layer can be adapted.

    Raises:
        UnsupportedNetwork: A batch norm has no or unusable running statistics, or no layer can be adapted.
    """
    adaptable: dict[str, SourceNorm] = {}
    left: dict[str, str] = {}
    for name, module in network.named_modules():
        found = _recognize(name, module)
        if isinstance(found, SourceNorm):
            adaptable[name] = found
        elif found is not None:
            left[name] = found
    if required and not adaptable:
        raise UnsupportedNetwork(_nothing_to_adapt(network, left))
    return adaptable, left


def _recognize(name: str, module: nn.Module) -> SourceNorm | str | None:
    if not _is_batch_norm(module):
        return None
    kind = type(module).__name__
    if parametrize.is_parametrized(module):
        return f"{kind} is parametrized"
    own_call = type(module).__call__ is not nn.Module.__call__
    owner = (
        None if own_call or "forward" in vars(module) else next(c for c in type(module).__mro__ if "forward" in vars(c))
    )
    full = "" if owner is None else f"{owner.__module__}.{owner.__qualname__}"
    known = _KNOWN.get(full)
    if known is None:
        return f"{kind} {_KNOWN_OTHERS.get(full, 'has its own forward, which is not known')}"
    tensors = {**module._parameters, **module._buffers}
    if "weight" not in tensors or "bias" not in tensors:
        return f"{kind} computes its scale or shift in a hook (pruning, weight norm)"
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
    """Return whether it is one of torch's batch norms, or another module with running statistics."""
    return isinstance(module, _BatchNorm) or {"running_mean", "running_var"} <= {
        name for name, buffer in module._buffers.items() if buffer is not None
    }


def _check_statistics(name: str, mean: Tensor | None, var: Tensor | None) -> None:
    if mean is None or var is None:
        raise UnsupportedNetwork(
            f"Layer {name!r} has no running statistics (track_running_stats=False), which adaptation starts from. "
            "Train it with track_running_stats=True, or run training images through the network in train mode."
        )
    if not mean.is_floating_point() or not var.is_floating_point():
        raise UnsupportedNetwork(
            f"The running statistics of layer {name!r} are {mean.dtype}; expected floating-point numbers. Convert the "
            "network, for example with network.float()."
        )
    if not bool(torch.isfinite(mean).all()) or not bool((torch.isfinite(var) & (var >= 0)).all()):
        raise UnsupportedNetwork(
            f"The running statistics of layer {name!r} are not finite, or a variance is negative. Check the weights."
        )


def _nothing_to_adapt(network: nn.Module, left: dict[str, str]) -> str:
    kind = type(network).__name__
    if left:
        layers: dict[str, list[str]] = {}
        for name, why in left.items():
            layers.setdefault(why, []).append(name)
        reasons = "; ".join(f"{why} ({listed([*map(repr, names)], 3)})" for why, names in layers.items())
        return f"{kind} has no norm layer that can be adapted: {reasons}."
    leaves = {type(m).__name__ for m in network.modules() if next(m.children(), None) is None}
    others = sorted(name for name in leaves if "norm" in name.lower())
    instead = f"its norm layers are {', '.join(others)}" if others else "it has no norm layers"
    return (
        f"{kind} has no batch normalization ({instead}), but this method adapts batch statistics. Use a network whose "
        "batch norm layers were not fused away, or another method."
    )
