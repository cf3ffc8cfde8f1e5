"""MixedNorm: a batch norm layer that mixes source and batch statistics.

DomainAdaptor, ICCV 2023: AdaMixBN is the mixture, "statistics transformation" is the folding.
"""

import weakref
from functools import partial
from typing import final

import torch
from torch import Tensor

from domainadaptor.norms.alpha import layer_alpha
from domainadaptor.norms.batch import AdaptiveBatchNorm, Use
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


@final
class MixedNorm(AdaptiveBatchNorm):
    """Normalize with alpha * source + (1 - alpha) * batch statistics.

    Args:
        source: The trained layer.
        alpha: The weight of the source statistics: a number, or the name of a rule in `norms.alpha`.
        fold: Whether the first pass after a reset moves the source statistics into scale and shift, so that the layer
            then uses batch statistics alone. Its output on this batch does not change, and it becomes fit for steps.
        variance: "unbiased" or "biased".
        running: Whether the mixture replaces the source statistics after each batch.
        constant: Whether gradients treat the mixture as a constant.

    Example:
        >>> from functools import partial
        >>> adaptor = da.StepAdaptor(network, norm=partial(da.MixedNorm, alpha=0.7))
        >>> adaptor.adapt(images).alpha
        {'1': 0.7}
    """

    kept = ("folded",)
    measured = ("_measured",)

    def __init__(
        self,
        source: SourceNorm,
        *,
        alpha: str | float,
        fold: bool = False,
        variance: Variance = "biased",
        running: bool = False,
        constant: bool = False,
    ) -> None:
        super().__init__(source, running=running)
        self.alpha = alpha
        self.fold = fold
        self.variance: Variance = variance
        self.follows = running
        self.fewest = 2 if isinstance(alpha, str) else 5 if alpha < 0.5 else 1
        self.constant = constant
        self.folded: Use | None = None
        self.cached = False  # whether later passes may bring the tensor that an earlier pass brought
        self._measured: tuple[weakref.ref[Tensor], int, Moments] | None = None

    @property
    def rule(self) -> str | float:
        """The weight of the source statistics, or the rule for it."""
        return self.alpha if self.following is None else 1.0 - self.following

    @property
    def batch_share(self) -> float:  # type: ignore[override]
        """How much of the statistics comes from the batch itself: all of it once folded."""
        if self.fold:
            return 1.0
        if not isinstance(self.rule, str):
            return 1.0 - float(self.rule)
        return 1.0 - max((float(use.alpha) for use in self.uses), default=1.0)

    def learned(self) -> dict[str, Tensor]:
        """Return scale and shift, and the running statistics if there are any."""
        values: dict[str, Tensor] = {"weight": self.scale, "bias": self.shift}
        return values | {"running_mean": self.source_mean, "running_var": self.source_var} if self.follows else values

    def _end_batch(self) -> None:
        if self.follows and self.uses:
            with torch.no_grad():
                self.source_mean.copy_(self.uses[-1].moments.mean)
                self.source_var.copy_(self.uses[-1].moments.var)

    def _measure(self, x: Tensor, source: Moments, count: int) -> Use:
        if self.folded is not None:
            return self._measure_folded(x, count)
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

    def _measure_folded(self, x: Tensor, count: int) -> Use:
        """Return batch statistics, unless there were none to fold with."""
        assert self.folded is not None
        if self.folded.single:
            return self.folded
        batch = self._scaled(batch_moments(self._image_moments(x)), count)
        return Use(self.folded.alpha, batch, single=False)

    def _alpha(self, x: Tensor, source: Moments, count: int) -> tuple[Tensor | float, Moments]:
        """Return the weight of the source, and the batch statistics."""
        images = self._image_moments(x)
        batch = self._scaled(batch_moments(images), count)
        if not isinstance(self.rule, str):
            return float(self.rule), batch
        space = count // x.shape[0]
        return layer_alpha(self.rule, self._scaled(images, space), batch, source, deviations=space > 1), batch

    def _image_moments(self, x: Tensor) -> Moments:
        """Return the moments of each image, measured once per batch if passes bring the same tensor."""
        if not self.cached or x.is_inference():
            return image_moments(x)
        if self._measured is not None:
            held, version, moments = self._measured
            if held() is x and x._version == version:
                return moments
        moments = image_moments(x)
        self._measured = weakref.ref(x), x._version, moments
        return moments

    def _scaled(self, biased: Moments, count: int) -> Moments:
        return Moments(biased.mean, biased.var * unbiased_factor(count, self.variance))

    def _fold(self, source: Moments, batch: Moments, use: Use) -> None:
        """Move the source statistics into scale and shift, given the mixture that was just measured."""
        deviation = (batch.var + self.eps).sqrt()
        scale = deviation / (use.moments.var + self.eps).sqrt() * self.source_tensors["scale"]
        shift = use.alpha * (batch.mean - source.mean) / deviation * scale + self.source_tensors["shift"]
        self.scale.copy_(scale)
        self.shift.copy_(shift)

    def _normalize_in_graph(self, x: Tensor, source: Moments, use: Use) -> Tensor:
        """Pass gradients through the batch statistics; alpha is a constant."""
        if self.constant or (self.folded is None and self.rule == 1):
            return self._normalize(x, use.moments)
        count = x.numel() // x.shape[1]
        if self.folded is not None or self.rule == 0:
            factor = unbiased_factor(count, self.variance)
            return normalized(x, self.scale, self.shift, use.moments, self.eps, factor)
        wide = in_float32(x)
        var, mean = torch.var_mean(wide, dim=[0, *range(2, x.ndim)], correction=1 if self.variance == "unbiased" else 0)
        mixed = source.mix(Moments(mean, var), use.alpha)
        shape = (1, -1, *[1] * (x.ndim - 2))
        scale = self.scale * (mixed.var + self.eps).rsqrt()
        y = (wide - mixed.mean.reshape(shape)) * scale.reshape(shape) + self.shift.reshape(shape)
        return y.to(x.dtype)


batch_only = partial(MixedNorm, alpha=0.0)  # batch statistics alone, as batch normalization is trained
