"""TunedNorm: layer, group and instance norms, which need no batch statistics, with a scale and a shift to learn."""

import copy
from typing import final

from torch import Tensor, nn
from torch.nn.modules.instancenorm import _InstanceNorm

from domainadaptor.norms.base import AdaptiveNorm
from domainadaptor.norms.moments import in_float32

_NAMES = {"weight": "scale", "bias": "shift"}
_RMS = (nn.RMSNorm,) if hasattr(nn, "RMSNorm") else ()  # since torch 2.4


@final
class TunedNorm(AdaptiveNorm):
    """Compute as the trained layer does, with another scale and shift."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__(layer)
        trained = {name: p for name in _NAMES if (p := layer._parameters.get(name)) is not None}
        self.learns = tuple(_NAMES[name] for name in trained)
        self._dtypes = {name: p.dtype for name, p in trained.items()}
        self._add_state(parameter=True, **{_NAMES[name]: in_float32(p.detach()) for name, p in trained.items()})
        # Without its parameters, which every use passes in.
        bare = copy.copy(layer)
        bare._parameters = {name: None if name in trained else p for name, p in layer._parameters.items()}
        self._bare = (bare,)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize in the trained layer's precision."""
        self.uses.append(None)
        bare = copy.copy(self._bare[0])
        own = {name: self.tensors[_NAMES[name]].to(dtype) for name, dtype in self._dtypes.items()}
        bare._parameters = {**bare._parameters, **own}  # type: ignore[dict-item]
        out: Tensor = bare.forward(x)
        return out

    def learned(self) -> dict[str, Tensor]:
        """Return scale and shift."""
        return {name: self.tensors[_NAMES[name]] for name in self._dtypes}

    def plain_values(self) -> dict[str, Tensor]:
        """Return scale and shift in the trained layer's precision."""
        return {name: value.detach().to(self._dtypes[name]) for name, value in self.learned().items()}


def find_other_norms(network: nn.Module) -> dict[str, nn.Module]:
    """Return norm layers that have a scale or shift and do not normalize over the batch, by name."""
    kinds = (nn.LayerNorm, nn.GroupNorm, _InstanceNorm, *_RMS)
    return {
        name: module
        for name, module in network.named_modules()
        if isinstance(module, kinds) and any(module._parameters.get(part) is not None for part in _NAMES)
    }
