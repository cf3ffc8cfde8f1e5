"""Layer, group and instance norms, which take each image's own statistics: a scale and a shift to learn, no more."""

import copy

import torch
from torch import Tensor, nn
from torch.nn.modules.instancenorm import _InstanceNorm

from domainadaptor.norms.base import AdaptiveNorm
from domainadaptor.norms.moments import in_float32

_NAMES = {"weight": "scale", "bias": "shift"}


class TunedNorm(AdaptiveNorm):
    """Computes as the trained layer does, with a scale and shift of its own."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        trained = {name: p for name in _NAMES if (p := layer._parameters.get(name)) is not None}
        self.learns = tuple(_NAMES[name] for name in trained)
        self._dtypes = {name: p.dtype for name, p in trained.items()}
        self.own = nn.ParameterDict(
            {name: nn.Parameter(in_float32(p.detach()).clone(), requires_grad=False) for name, p in trained.items()}
        )
        for name, p in trained.items():
            self.register_buffer(f"source_{name}", in_float32(p.detach()).clone())
        # Without its parameters, which are given at each use, and not a part of this layer.
        bare = copy.copy(layer)
        bare._parameters = {name: None if name in trained else p for name, p in layer._parameters.items()}
        self._trained = (layer, bare)
        self.uses: list[None] = []  # one for each time that the last pass of the network used the layer

    @property
    def passes(self) -> int:
        """How often the last pass of the network used the layer."""
        return len(self.uses)

    def begin_pass(self) -> None:
        """A new pass of the network begins."""
        self.uses = []

    def forward(self, x: Tensor) -> Tensor:
        """As the trained layer does, in its own precision."""
        self.uses.append(None)
        bare = copy.copy(self._trained[1])
        own = {name: p.to(self._dtypes[name]) for name, p in self.own.items()}
        bare._parameters = {**bare._parameters, **own}
        out: Tensor = bare.forward(x)
        return out

    def learnable(self) -> list[nn.Parameter]:
        """Its scale and shift; none for a layer that is used more than once."""
        return [] if self.reused else list(self.own.values())

    @torch.no_grad()
    def reset(self) -> None:
        """Goes back to the source."""
        for name, p in self.own.items():
            p.copy_(getattr(self, f"source_{name}"))
            p.grad = None
        self.uses = []

    def settle(self) -> None:
        """Nothing is held from one pass to the next."""
        self.uses = []

    def memory(self) -> list[Tensor]:
        """Copies of scale and shift."""
        return [p.detach().clone() for p in self.own.values()]

    @torch.no_grad()
    def recall(self, memory: list[Tensor]) -> None:
        """Goes back to those."""
        for p, value in zip(self.own.values(), memory, strict=True):
            p.copy_(value)
            p.grad = None
        self.uses = []

    def learned(self) -> dict[str, Tensor]:
        """Scale and shift."""
        return dict(self.own.items())

    def plain_values(self) -> dict[str, Tensor]:
        """Scale and shift, in the trained layer's precision."""
        return {name: p.detach().to(self._dtypes[name]) for name, p in self.own.items()}


def find_other_norms(network: nn.Module) -> dict[str, nn.Module]:
    """Norm layers with a scale or shift that do not normalize over the batch, by name; subclasses too."""
    kinds = (nn.LayerNorm, nn.GroupNorm, _InstanceNorm, nn.RMSNorm)
    return {
        name: module
        for name, module in network.named_modules()
        if isinstance(module, kinds) and any(module._parameters.get(part) is not None for part in _NAMES)
    }
