"""DELTA: batch renormalization and class-balanced weights. Zhao et al., ICLR 2023."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import domainadaptor as da
from domainadaptor import method
from domainadaptor import option_types as t
from domainadaptor.methods.tent import descend
from domainadaptor.norms.batch import AdaptiveBatchNorm, Use
from domainadaptor.norms.moments import Moments, batch_moments, image_moments, in_float32
from domainadaptor.norms.recognize import SourceNorm

__all__ = ["delta"]


@method(
    paper="Zhao et al., DELTA",
    year=2023,
    kind="statistics",
    forwards="1 (2 if it predicts after)",
    backwards="1",
    options=t.gradient_steps,
)
def delta(
    network: nn.Module,
    *,
    loss: Literal["entropy", "weighted-entropy", "pseudo-label"] = "entropy",
    keep: t.Share = 0.95,
    balance: t.Share = 0.95,
    **steps: Any,
) -> da.Adaptor:
    """Running test statistics; rare classes weigh more.

    The statistics follow the stream wherever it goes: hostile batches can cost tens of points, also with guard=True.

    Args:
        network: Any trained network with batch normalization.
        loss: "entropy" as over Tent; "weighted-entropy" of images below half the largest entropy, weighted by
            confidence; or "pseudo-label" of images with a probability above 0.4.
        keep: Weight of the running statistics when a batch is added; 0 uses the last batch alone.
        balance: Weight of the running mean prediction, whose inverse weighs the classes; 1 weighs all alike.
    """
    norm = partial(RenormalizedNorm, keep=keep)
    return descend(network, _Balanced(loss, balance), norm=norm, others=False, **steps)


@final
class RenormalizedNorm(AdaptiveBatchNorm):
    """Normalize with moving averages of mean and deviation, with the gradient of batch normalization.

    The averages start with the first batch and are updated after each batch. They average the deviation, not the
    variance. A layer that is used more than once has no averages and normalizes each use by itself.
    """

    kept = ("average",)
    measured = ("_new",)
    follows = True

    def __init__(self, source: SourceNorm, *, keep: float) -> None:
        super().__init__(source)
        self.keep = keep
        self.average: Moments | None = None  # its var is a deviation
        self._new: Moments | None = None  # of the first pass of this batch

    def _measure(self, x: Tensor, source: Moments, count: int) -> Use:
        if count == 1:
            return Use(1.0, source, single=True)
        mean, var = batch_moments(image_moments(x))
        if self.reused:
            return Use(0.0, Moments(mean, var), single=False)
        batch = Moments(mean, (var + self.eps).sqrt())
        if self._new is None:
            self._new = batch
        used = batch if self.average is None else self.average
        return Use(0.0, Moments(used.mean, self._variance(used)), single=False)

    def _variance(self, average: Moments) -> Tensor:
        return (average.var.square() - self.eps).clamp(min=0)

    def _normalize_in_graph(self, x: Tensor, source: Moments, use: Use) -> Tensor:
        """Normalize with the averages; gradients pass through the batch statistics."""
        wide = in_float32(x)
        var, mean = torch.var_mean(wide, dim=[0, *range(2, x.ndim)], correction=0)
        deviation = (var + self.eps).sqrt()
        used = use.moments
        far = (used.var + self.eps).sqrt()
        ratio, shift = deviation.detach() / far, (mean.detach() - used.mean) / far
        shape = (1, -1, *[1] * (x.ndim - 2))
        y = (wide - mean.reshape(shape)) / deviation.reshape(shape) * ratio.reshape(shape) + shift.reshape(shape)
        return (y * self.scale.reshape(shape) + self.shift.reshape(shape)).to(x.dtype)

    def _end_batch(self) -> None:
        if self._new is not None:
            self.average = self._new if self.average is None else self.average.mix(self._new, self.keep)

    def learned(self) -> dict[str, Tensor]:
        """Return scale and shift, and the averages as statistics."""
        values: dict[str, Tensor] = {"weight": self.scale, "bias": self.shift}
        if self.average is None:
            return values
        return values | {"running_mean": self.average.mean, "running_var": self._variance(self.average)}


class _Balanced(da.Objective):
    """A mean loss that weights images by the inverse frequency of their predicted class."""

    rows_only = True

    def __init__(self, loss: str, keep: float) -> None:
        self.loss = loss
        self._frequency = da.EmaPrediction(keep, uniform=True)

    def _parts(self) -> Sequence[da.Stateful]:
        return (self._frequency,)

    def __call__(self, network: da.AdaptiveNetwork, images: Tensor, logits: Tensor) -> Tensor | None:
        """Return the mean over the images used; None if there are none."""
        p = logits.detach().softmax(1)
        frequency = self._frequency.before(p)
        confidence, label = p.max(1)
        weight = 1 / frequency.clamp(min=1e-12)[label]
        weight = weight / weight.mean()
        self._frequency.add(p)
        if self.loss == "pseudo-label":
            values, used = F.cross_entropy(logits, label, reduction="none"), confidence > 0.4
        else:
            values = da.entropy(logits)
            used = torch.ones_like(label, dtype=torch.bool)
        if self.loss == "weighted-entropy":
            factor = (0.5 * math.log(p.shape[1]) - values.detach()).exp()
            weight, used = weight * factor, factor > 1
        return (weight * values)[used].mean() if bool(used.any()) else None
