"""A stand-in for one batch norm layer that normalizes with averages over the test batches so far.

DELTA, ICLR 2023: test-time batch renormalization.
"""

import torch
from torch import Tensor

from domainadaptor.norms.mixed import MixedNorm, Use
from domainadaptor.norms.moments import Moments, batch_moments, image_moments, in_float32
from domainadaptor.norms.recognize import SourceNorm


class RenormalizedNorm(MixedNorm):
    """Normalizes with moving averages of mean and deviation, with the gradient of plain batch normalization.

    The averages begin with the first batch and take in each batch after it was normalized. What was averaged is the
    deviation, not the variance. A layer that is used more than once has no averages, and takes each use's own.
    """

    def __init__(self, source: SourceNorm, *, keep: float) -> None:
        super().__init__(source, alpha=0.0, fold=False, variance="biased")
        self.keep = keep
        self._average: Moments | None = None  # the second is a deviation
        self._new: Moments | None = None  # of the batch at hand, by its first pass

    @property
    def batch_share(self) -> float:
        """None of the statistics: the averages are older than the batch."""
        return 0.0

    @property
    def follows(self) -> bool:
        """The averages do."""
        return True

    @torch.no_grad()
    def _measure(self, x: Tensor, source: Moments, count: int) -> Use:
        if count == 1:
            return Use(1.0, source, single=True)
        mean, var = batch_moments(image_moments(x))
        batch = Moments(mean, (var + self.eps).sqrt())
        if self.reused:
            return Use(0.0, Moments(mean, var), single=False)
        if self._new is None:
            self._new = batch
        used = batch if self._average is None else self._average
        return Use(0.0, Moments(used.mean, self._variance(used)), single=False)

    def _variance(self, average: Moments) -> Tensor:
        return (average.var.square() - self.eps).clamp(min=0)

    def _normalize_through_mixture(self, x: Tensor, source: Moments, use: Use) -> Tensor:
        """By the averages in value, through the batch statistics in the graph."""
        wide = in_float32(x)
        var, mean = torch.var_mean(wide, dim=[0, *range(2, x.ndim)], correction=0)
        deviation = (var + self.eps).sqrt()
        used = use.moments
        far = (used.var + self.eps).sqrt()
        ratio, shift = deviation.detach() / far, (mean.detach() - used.mean) / far
        shape = (1, -1, *[1] * (x.ndim - 2))
        y = (wide - mean.reshape(shape)) / deviation.reshape(shape) * ratio.reshape(shape) + shift.reshape(shape)
        return (y * self.scale.reshape(shape) + self.shift.reshape(shape)).to(x.dtype)

    def settle(self) -> None:
        """Ends a batch: the averages take it in."""
        if self._new is not None:
            self._average = self._new if self._average is None else self._average.mix(self._new, self.keep)
            self._new = None
        super().settle()

    def reset(self) -> None:
        """Goes back to the source, and to no averages."""
        self._average = self._new = None
        super().reset()

    def memory(self) -> list[Tensor]:
        """Copies of scale, shift, statistics, and averages if there are any."""
        return [*super().memory(), *(t.clone() for t in self._average or ())]

    def recall(self, memory: list[Tensor]) -> None:
        """Goes back to what `memory` gave."""
        super().recall(memory[:4])
        averages = [t.to(self.source_mean).clone() for t in memory[4:]]
        self._average = Moments(*averages) if averages else None
        self._new = None

    def learned(self) -> dict[str, Tensor]:
        """Scale, shift and averages, by the trained layer's names."""
        if self._average is None:
            return super().learned()
        return super().learned() | {
            "running_mean": self._average.mean,
            "running_var": self._variance(self._average),
        }
