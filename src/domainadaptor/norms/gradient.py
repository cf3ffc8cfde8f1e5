"""Batch normalization with given batch statistics, and the gradient through them."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from domainadaptor.norms.moments import Moments


def normalized(x: Tensor, scale: Tensor, shift: Tensor, batch: Moments, eps: float, factor: float) -> Tensor:
    """Normalize a batch (N, C, ...) with its own moments, with gradients through them.

    The training kernel of batch normalization would measure the moments again.

    Args:
        x: The batch.
        scale: Scale of each channel, (C,).
        shift: Shift of each channel, (C,).
        batch: The moments of `x`.
        eps: Added to the variance.
        factor: Ratio of the given variance to the biased one.
    """
    y: Tensor = _Normalized.apply(x, scale, shift, *batch, eps, factor)
    return y


class _Normalized(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, scale: Tensor, shift: Tensor, mean: Tensor, var: Tensor, eps: float, _: float) -> Tensor:
        return F.batch_norm(x, mean, var, scale, shift, training=False, eps=eps)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, scale, _, mean, var, ctx.eps, ctx.factor = inputs
        ctx.save_for_backward(x, scale, mean, var)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, scale, mean, var = ctx.saved_tensors
        # The kernel expects the biased deviation; with that and a smaller scale the function is the same.
        root = ctx.factor**0.5
        inverse_deviation = root * (var + ctx.eps).rsqrt()
        wanted = ctx.needs_input_grad[:3]
        of_x, of_scale, of_shift = torch.ops.aten.native_batch_norm_backward(
            gradients[0], x, scale / root, None, None, mean, inverse_deviation, True, ctx.eps, wanted
        )
        return of_x if wanted[0] else None, of_scale / root if wanted[1] else None, of_shift, None, None, None, None
