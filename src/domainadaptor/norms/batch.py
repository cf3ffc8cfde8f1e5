"""AdaptiveBatchNorm: what all replacements of batch norm layers have in common."""

from abc import abstractmethod
from typing import NamedTuple, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from domainadaptor.norms.base import AdaptiveNorm
from domainadaptor.norms.moments import Moments, in_float32
from domainadaptor.norms.recognize import SourceNorm
from domainadaptor.profiling import STATISTICS, phase


class Use(NamedTuple):
    """One use of a layer in a pass: the statistics it normalized with, and the weight of the source in them."""

    alpha: Tensor | float
    moments: Moments
    single: bool  # one value per channel: there are no batch statistics, so the source statistics were used


class AdaptiveBatchNorm(AdaptiveNorm):
    """Normalize with statistics that a subclass measures, then scale and shift.

    Args:
        source: The trained layer.
        running: Whether `source_mean` and `source_var` are state that changes from batch to batch.
    """

    source_mean: Tensor
    source_var: Tensor
    scale: nn.Parameter
    shift: nn.Parameter

    def __init__(self, source: SourceNorm, *, running: bool = False) -> None:
        super().__init__(source.layer)
        self.eps = source.eps
        self.native = source.native
        self.own_dtype = source.mean.dtype
        self.learns = tuple(name for name, t in (("scale", source.weight), ("shift", source.bias)) if t is not None)
        mean, var = (in_float32(t.detach()) for t in (source.mean, source.var))
        weight = torch.ones_like(mean) if source.weight is None else in_float32(source.weight)
        bias = torch.zeros_like(mean) if source.bias is None else in_float32(source.bias)
        self._add_state(parameter=True, scale=weight, shift=bias)
        if running:
            self._add_state(source_mean=mean, source_var=var)
        else:
            self.register_buffer("source_mean", mean.clone())
            self.register_buffer("source_var", var.clone())
        self.tail = nn.Sequential(*source.tail)

    @abstractmethod
    def _measure(self, x: Tensor, source: Moments, count: int) -> Use:
        """Return the statistics to normalize `count` values per channel with, as constants."""

    @abstractmethod
    def _normalize_in_graph(self, x: Tensor, source: Moments, use: Use) -> Tensor:
        """Normalize with the gradient that the method wants to pass through the statistics."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalize a batch (N, C, ...)."""
        source = Moments(self.source_mean, self.source_var)
        with phase(STATISTICS), torch.no_grad():
            use = self._measure(x, source, x.numel() // x.shape[1])
        self.uses.append(use)
        if use.single or not (torch.is_grad_enabled() and any(t.requires_grad for t in (x, self.scale, self.shift))):
            y = self._normalize(x, use.moments)
        else:
            y = self._normalize_in_graph(x, source, use)
        out: Tensor = self.tail(y)
        return out

    @final
    def plain_values(self) -> dict[str, Tensor]:
        """Return the trained layer's tensors with which it repeats the last use of this layer in eval mode.

        A scale or shift that the trained layer does not have moves into the statistics.
        """
        (mean, var), scale, shift = self.uses[-1].moments, self.scale.detach(), self.shift.detach()
        if "shift" not in self.learns:
            mean = mean - torch.where(scale == 0, 0.0, shift * (var + self.eps).sqrt() / scale)
        if "scale" not in self.learns:
            var = ((var + self.eps) / scale.square() - self.eps).clamp(min=0)
        values = {"running_mean": mean, "running_var": var, "weight": scale, "bias": shift}
        # The kernel takes float32 statistics with images of lower precision; rounding them would change its output.
        return values if self.native else {name: value.to(self.own_dtype) for name, value in values.items()}

    def _normalize(self, x: Tensor, moments: Moments) -> Tensor:
        """Normalize as the trained layer does with its running statistics, so that alpha = 1 is bit-identical."""
        if self.native:
            return F.batch_norm(x, *moments, self.scale, self.shift, training=False, eps=self.eps)
        shape = (1, -1, *[1] * (x.ndim - 2))
        mean, var, weight, bias = (
            t.to(self.own_dtype).reshape(shape) for t in (moments.mean, moments.var, self.scale, self.shift)
        )
        scale = weight * (var + self.eps).rsqrt()
        return x * scale + (bias - mean * scale)
