"""A stand-in for one batch norm layer that normalizes with a mixture of source and batch statistics.

DomainAdaptor, ICCV 2023: AdaMixBN is the mixture, "statistics transformation" is the folding.
"""

import weakref
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from domainadaptor.norms.alpha import layer_alpha
from domainadaptor.norms.base import AdaptiveNorm
from domainadaptor.norms.gradient import normalized
from domainadaptor.norms.moments import (
    Moments,
    Variance,
    batch_moments,
    image_moments,
    in_float32,
    unbiased_factor,
)
from domainadaptor.norms.recognize import SourceNorm
from domainadaptor.profiling import STATISTICS, phase


class Use(NamedTuple):
    """One use of a layer in a pass: the statistics it normalized with and their mixture's alpha."""

    alpha: Tensor | float
    moments: Moments
    single: bool  # one value per channel: no batch statistics, the source ones were kept


class MixedNorm(AdaptiveNorm):
    """Normalizes with alpha * source + (1 - alpha) * batch statistics; has no train and eval modes.

    With `fold`, the first pass after `reset` moves the source statistics into scale and shift, and the layer goes on
    with batch statistics alone. That leaves its output on this batch unchanged, and makes it fit to be fine-tuned. With
    `running`, the mixture takes the place of the source statistics after each batch.
    """

    def __init__(
        self, source: SourceNorm, *, alpha: str | float, fold: bool, variance: Variance, running: bool = False
    ) -> None:
        super().__init__()
        self.running = running
        self.rule = alpha
        self.fold = fold
        self.variance: Variance = variance
        self.eps = source.eps
        self.native = source.native
        self.own_dtype = source.mean.dtype
        self.learns = tuple(name for name, t in (("scale", source.weight), ("shift", source.bias)) if t is not None)
        self.register_buffer("source_mean", in_float32(source.mean.detach()).clone())
        self.register_buffer("source_var", in_float32(source.var.detach()).clone())
        self._trained_mean, self._trained_var = source.mean.detach(), source.var.detach()
        one, zero = torch.ones_like(self.source_mean), torch.zeros_like(self.source_mean)
        self.register_buffer("source_scale", _value(source.weight, one))
        self.register_buffer("source_shift", _value(source.bias, zero))
        self.scale = nn.Parameter(self.source_scale.clone(), requires_grad=False)
        self.shift = nn.Parameter(self.source_shift.clone(), requires_grad=False)
        self.tail = nn.Sequential(*source.tail)
        self.folded: Use | None = None
        self.uses: list[Use] = []
        self.again = False  # passes may bring the very tensor that an earlier one brought, and nobody wrote to it
        self._measured: tuple[weakref.ref[Tensor], int, Moments] | None = None
        self._trained = (source.layer,)  # in a tuple, so that it does not count as a part of this layer

    source_mean: Tensor
    source_var: Tensor
    source_scale: Tensor
    source_shift: Tensor

    @property
    def batch_share(self) -> float:
        """How much of the statistics is the batch's own: all once folded."""
        if self.fold:
            return 1.0
        if not isinstance(self.rule, str):
            return 1.0 - float(self.rule)
        return 1.0 - max((float(use.alpha) for use in self.uses), default=1.0)

    @property
    def follows(self) -> bool:
        """Whether the mixture becomes the source of the next batch."""
        return self.running

    @property
    def passes(self) -> int:
        """How often the last pass of the network used the layer."""
        return len(self.uses)

    def begin_pass(self) -> None:
        """A new pass of the network begins."""
        self.uses = []

    def learnable(self) -> list[nn.Parameter]:
        """The scale and shift that the trained layer has; none for a layer that is used more than once."""
        return [] if self.reused else [getattr(self, name) for name in self.learns]

    def settle(self) -> None:
        """Ends a batch: what its passes measured is kept as running statistics, or let go."""
        if self.running and self.uses:
            with torch.no_grad():
                self.source_mean.copy_(self.uses[-1].moments.mean)
                self.source_var.copy_(self.uses[-1].moments.var)
        self.uses, self._measured = [], None

    def memory(self) -> list[Tensor]:
        """Copies of what it learned."""
        return [t.detach().clone() for t in (self.scale, self.shift, self.source_mean, self.source_var)]

    @torch.no_grad()
    def recall(self, memory: list[Tensor]) -> None:
        """Goes back to what `memory` gave."""
        for tensor, value in zip((self.scale, self.shift, self.source_mean, self.source_var), memory, strict=True):
            tensor.copy_(value)
        self.scale.grad = self.shift.grad = None
        self.uses, self._measured = [], None

    def learned(self) -> dict[str, Tensor]:
        """What it remembers between batches, by the trained layer's names."""
        values: dict[str, Tensor] = {"weight": self.scale, "bias": self.shift}
        return values | {"running_mean": self.source_mean, "running_var": self.source_var} if self.running else values

    def reset(self) -> None:
        """Goes back to the source: statistics, scale, shift, and nothing folded."""
        with torch.no_grad():
            self.scale.copy_(self.source_scale)
            self.shift.copy_(self.source_shift)
            if self.running:
                self.source_mean.copy_(self._trained_mean)
                self.source_var.copy_(self._trained_var)
        self.scale.grad = self.shift.grad = None
        self.folded = None
        self.uses, self._measured = [], None

    def plain_values(self) -> dict[str, Tensor]:
        """What makes the trained layer, in eval mode, repeat this layer's last use: its four tensors by name.

        A scale or shift that the trained layer does not have is moved into the statistics.
        """
        (mean, var), scale, shift = self.uses[-1].moments, self.scale.detach(), self.shift.detach()
        if "shift" not in self.learns:
            mean = mean - torch.where(scale == 0, 0.0, shift * (var + self.eps).sqrt() / scale)
        if "scale" not in self.learns:
            var = ((var + self.eps) / scale.square() - self.eps).clamp(min=0)
        values = {"running_mean": mean, "running_var": var, "weight": scale, "bias": shift}
        # The kernel takes statistics in float32 beside images in less, and rounding them would change its output.
        return values if self.native else {name: value.to(self.own_dtype) for name, value in values.items()}

    def forward(self, x: Tensor) -> Tensor:
        """Normalizes a batch (N, C, ...)."""
        source = Moments(self.source_mean, self.source_var)
        count = x.numel() // x.shape[1]
        with phase(STATISTICS):
            use = self._measure(x, source, count)
        self.uses.append(use)
        if use.single or not self._in_graph(x):
            y = self._normalize(x, use.moments)
        elif self.folded is not None:
            y = self._normalize_through_batch(x, use.moments, count)
        elif self.rule == 1:
            y = self._normalize(x, source)
        else:
            y = self._normalize_through_mixture(x, source, use)
        out: Tensor = self.tail(y)
        return out

    def _in_graph(self, x: Tensor) -> bool:
        return torch.is_grad_enabled() and any(t.requires_grad for t in (x, self.scale, self.shift))

    @torch.no_grad()
    def _measure(self, x: Tensor, source: Moments, count: int) -> Use:
        if self.folded is not None:
            return self._measure_folded(x, source, count)
        fold = self.fold and not self.reused
        if count == 1 or (self.rule == 1 and not fold):
            use = Use(1.0, source, single=count == 1)
        else:
            alpha, batch = self._alpha(x, source, count)
            use = Use(alpha, source.mix(batch, alpha), single=False)
            if fold:
                self._fold(source, batch, use)
                use = Use(alpha, batch, single=False)
        if fold:
            self.folded = use
        return use

    def _measure_folded(self, x: Tensor, source: Moments, count: int) -> Use:
        """Batch statistics, unless the layer had none to fold with."""
        assert self.folded is not None
        if self.folded.single:
            return self.folded
        batch = self._batch_moments(batch_moments(self._image_moments(x)), count)
        return Use(self.folded.alpha, batch, single=False)

    def _alpha(self, x: Tensor, source: Moments, count: int) -> tuple[Tensor | float, Moments]:
        """The weight of the source, and the batch statistics that it is weighed against."""
        images = self._image_moments(x)
        batch = self._batch_moments(batch_moments(images), count)
        if not isinstance(self.rule, str):
            return float(self.rule), batch
        space = count // x.shape[0]
        images = Moments(images.mean, images.var * unbiased_factor(space, self.variance))
        return layer_alpha(self.rule, images, batch, source, deviations=space > 1), batch

    def _image_moments(self, x: Tensor) -> Moments:
        """Of each image; as measured before if an earlier pass brought the same tensor."""
        if not self.again or x.is_inference():
            return image_moments(x)
        if self._measured is not None:
            held, version, moments = self._measured
            if held() is x and x._version == version:
                return moments
        moments = image_moments(x)
        self._measured = weakref.ref(x), x._version, moments
        return moments

    def _batch_moments(self, biased: Moments, count: int) -> Moments:
        return Moments(biased.mean, biased.var * unbiased_factor(count, self.variance))

    def _fold(self, source: Moments, batch: Moments, use: Use) -> None:
        """Moves the source statistics into scale and shift; the mixture is what was just measured."""
        deviation = (batch.var + self.eps).sqrt()
        scale = deviation / (use.moments.var + self.eps).sqrt() * self.source_scale
        shift = use.alpha * (batch.mean - source.mean) / deviation * scale + self.source_shift
        self.scale.copy_(scale)
        self.shift.copy_(shift)

    def _normalize(self, x: Tensor, moments: Moments) -> Tensor:
        """As the trained layer does with its running statistics, so that alpha 1 is the same to the last bit."""
        if self.native:
            return F.batch_norm(x, *moments, self.scale, self.shift, training=False, eps=self.eps)
        shape = (1, -1, *[1] * (x.ndim - 2))
        mean, var, weight, bias = (
            t.to(self.own_dtype).reshape(shape) for t in (moments.mean, moments.var, self.scale, self.shift)
        )
        scale = weight * (var + self.eps).rsqrt()
        return x * scale + (bias - mean * scale)

    def _normalize_through_batch(self, x: Tensor, batch: Moments, count: int) -> Tensor:
        """Batch statistics inside the graph."""
        return normalized(x, self.scale, self.shift, batch, self.eps, unbiased_factor(count, self.variance))

    def _normalize_through_mixture(self, x: Tensor, source: Moments, use: Use) -> Tensor:
        """The mixture inside the graph: alpha is a constant, the batch statistics are not."""
        if self.rule == 0:
            return self._normalize_through_batch(x, use.moments, x.numel() // x.shape[1])
        space = [0, *range(2, x.ndim)]
        wide = in_float32(x)
        var, mean = torch.var_mean(wide, dim=space, correction=1 if self.variance == "unbiased" else 0)
        mixed = source.mix(Moments(mean, var), use.alpha)
        shape = (1, -1, *[1] * (x.ndim - 2))
        scale = self.scale * (mixed.var + self.eps).rsqrt()
        y = (wide - mixed.mean.reshape(shape)) * scale.reshape(shape) + self.shift.reshape(shape)
        return y.to(x.dtype)


def _value(trained: Tensor | None, absent: Tensor) -> Tensor:
    return absent if trained is None else in_float32(trained.detach()).clone()
