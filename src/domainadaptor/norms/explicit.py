"""ExplicitNorm: mixed statistics in plain arithmetic, which can be exported and compiled."""

from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from domainadaptor.norms.alpha import layer_alpha
from domainadaptor.norms.mixed import MixedNorm
from domainadaptor.norms.moments import Moments, in_float32, unbiased_factor
from domainadaptor.norms.shift import number_of

_AFFINE = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}


@final
class ExplicitNorm(nn.Module):
    """Normalize as a `MixedNorm` does in the first pass of a batch, without state, hooks and branches on data.

    Values are first normalized with the source statistics: compilers fold that into the convolution before, and the
    sums of squares lose no digits to a large mean. What is left is one scale and one shift per channel.

    Args:
        norm: The layer to repeat.
    """

    mean: Tensor
    var: Tensor
    scale: Tensor
    shift: Tensor

    def __init__(self, norm: MixedNorm) -> None:
        super().__init__()
        self.alpha, self.variance, self.eps = norm.alpha, norm.variance, norm.eps
        self.tail = norm.tail
        self.register_buffer("mean", norm.source_mean.clone())
        self.register_buffer("var", norm.source_var.clone())
        self.register_buffer("scale", norm.scale.detach().clone())
        self.register_buffer("shift", norm.shift.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """Normalize a batch (N, C, ...)."""
        normed = F.batch_norm(in_float32(x), self.mean, self.var, eps=self.eps)
        alpha, batch = self._measure(normed)
        wide = self.var + self.eps
        scale = self.scale * (wide / (alpha * self.var + (1 - alpha) * batch.var + self.eps)).sqrt()
        shift = self.shift - scale * (1 - alpha) * (batch.mean - self.mean) * wide.rsqrt()
        out: Tensor = self.tail(_affine(normed, scale, shift).to(x.dtype))
        return out

    def _measure(self, normed: Tensor) -> tuple[Tensor | float, Moments]:
        """Return the weight of the source statistics, and the moments of the batch before it was normalized."""
        rows = normed.flatten(2) if normed.ndim > 2 else normed.unsqueeze(2)
        space, mean = rows.shape[2], rows.mean(2)
        var = ((rows * rows).mean(2) - mean * mean).clamp(min=0) if space > 1 else torch.zeros_like(mean)
        wide = self.var + self.eps
        images = Moments(self.mean + mean * wide.sqrt(), var * wide)
        of_all = mean.mean(0)
        values = number_of(mean) * space
        factor = values / (values - 1).clamp(min=1) if self.variance == "unbiased" else 1.0
        biased = (var.mean(0) + (mean - of_all).square().mean(0)) * wide
        batch = Moments(self.mean + of_all * wide.sqrt(), biased * factor)
        alpha: Tensor | float = (
            self.alpha
            if not isinstance(self.alpha, str)
            else layer_alpha(
                self.alpha,
                Moments(images.mean, images.var * unbiased_factor(space, self.variance)),
                batch,
                Moments(self.mean, self.var),
                deviations=space > 1,
            )
        )
        if space == 1:  # a single value per channel has no variance
            alpha = 1 - (1 - alpha) * (values > 1).to(mean)
        return alpha, batch


def _affine(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Return x * scale + shift, by channel. onnxruntime does it in one pass, activation included, as a convolution."""
    if x.ndim in _AFFINE and torch.onnx.is_in_onnx_export():
        return _AFFINE[x.ndim](x, scale.reshape(-1, *[1] * (x.ndim - 1)), shift, groups=len(scale))
    shape = (-1, *[1] * (x.ndim - 2))
    return torch.addcmul(shift.reshape(shape), x, scale.reshape(shape))
