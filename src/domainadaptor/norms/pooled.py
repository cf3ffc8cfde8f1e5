"""A stand-in for one batch norm layer whose statistics are those of many batches, measured beforehand."""

import torch
from torch import Tensor

from domainadaptor.norms.mixed import MixedNorm
from domainadaptor.norms.moments import Variance, in_float32, unbiased_factor
from domainadaptor.norms.recognize import SourceNorm


class PooledNorm(MixedNorm):
    """Normalizes each batch by itself while it measures, and then by the statistics of all that it was given."""

    def __init__(self, source: SourceNorm, *, variance: Variance) -> None:
        super().__init__(source, alpha=0.0, fold=False, variance="biased")
        self._kind: Variance = variance
        self._count = 0
        self._mean = torch.zeros_like(self.source_mean, dtype=torch.float64, device="cpu")
        self._squares = torch.zeros_like(self._mean)  # of distances from the mean

    def forward(self, x: Tensor) -> Tensor:
        """Normalizes a batch (N, C, ...)."""
        if self.rule != 1:
            self._add(x.detach())
        return super().forward(x)

    def _add(self, x: Tensor) -> None:
        """Joins the moments of two sets of values: sums of squares of large numbers would lose their difference."""
        count = x.numel() // x.shape[1]
        moments = torch.var_mean(in_float32(x), dim=[0, *range(2, x.ndim)], correction=0)
        var, mean = (moment.cpu().double() for moment in moments)
        total, way = self._count + count, mean - self._mean
        self._squares += count * var + way.square() * (self._count * count / total)
        self._mean += way * (count / total)
        self._count = total

    def fix(self) -> None:
        """Ends measuring; a layer that saw less than two values keeps its source's statistics."""
        self.rule = 1
        self.used = self._count > 0
        if self._count > 1:
            factor = unbiased_factor(self._count, self._kind)
            self.source_mean.copy_(self._mean)
            self.source_var.copy_(self._squares / self._count * factor)
