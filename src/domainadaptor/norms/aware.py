"""A stand-in for instance-aware batch norm that learns and whose statistics can follow batches."""

import torch
from torch import Tensor, nn

from domainadaptor.norms.base import AdaptiveNorm
from domainadaptor.norms.instance_aware import InstanceAwareBatchNorm2d, corrected
from domainadaptor.norms.moments import in_float32


class AwareNorm(AdaptiveNorm):
    """Normalizes as the trained layer in eval mode does; while it follows, as in train mode.

    Args:
        layer: The trained layer.
        share: Of a batch in the running statistics, while it follows.
    """

    def __init__(self, layer: InstanceAwareBatchNorm2d, *, share: float) -> None:
        super().__init__()
        assert layer.running_mean is not None
        assert layer.running_var is not None
        self.eps, self.band, self._share = float(layer.eps), float(layer.band), share
        self._dtype = layer.running_mean.dtype
        self.learns = ("scale", "shift") if layer.affine else ()
        self.register_buffer("source_mean", in_float32(layer.running_mean.detach()).clone())
        self.register_buffer("source_var", in_float32(layer.running_var.detach()).clone())
        weight = in_float32(layer.weight.detach()) if layer.affine else torch.ones_like(self.source_mean)
        bias = in_float32(layer.bias.detach()) if layer.affine else torch.zeros_like(self.source_mean)
        self.register_buffer("source_scale", weight.clone())
        self.register_buffer("source_shift", bias.clone())
        self.register_buffer("mean", self.source_mean.clone())
        self.register_buffer("var", self.source_var.clone())
        self.scale = nn.Parameter(weight.clone(), requires_grad=False)
        self.shift = nn.Parameter(bias.clone(), requires_grad=False)
        self.tail = nn.Sequential(*layer.children())  # timm's layers hold the activation that follows
        self.following = False
        self._passes = 0
        self._measured: tuple[Tensor, Tensor] | None = None
        self._trained = (layer,)  # in a tuple, so that it does not count as a part of this layer

    source_mean: Tensor
    source_var: Tensor
    source_scale: Tensor
    source_shift: Tensor
    mean: Tensor
    var: Tensor

    @property
    def follows(self) -> bool:
        """The running statistics do, whenever it learns."""
        return True

    @property
    def passes(self) -> int:
        """How often the last pass of the network used the layer."""
        return self._passes

    def begin_pass(self) -> None:
        """A new pass of the network begins."""
        self._passes = 0
        self._measured = None

    def forward(self, images: Tensor) -> Tensor:
        """Normalizes a batch (N, C, H, W)."""
        self._passes += 1
        x = in_float32(images)
        space = x.shape[2] * x.shape[3]
        mean, var = self.mean, self.var
        if self.following and len(x) * space > 1:
            var, mean = torch.var_mean(x, dim=(0, 2, 3), unbiased=True)
            self._measured = mean.detach(), var.detach()
            if space == 1:  # plain batch norm, which divides by the biased deviation
                var = torch.var(x, dim=(0, 2, 3), unbiased=False)
        shape = (-1, 1, 1)
        if space > 1:
            y = corrected(x, mean, var, self.eps, self.band)
        else:  # an image of one pixel has no variance of its own
            y = (x - mean.view(shape)) * (var + self.eps).rsqrt().view(shape)
        y = y * self.scale.view(shape) + self.shift.view(shape)
        out: Tensor = self.tail(y.to(images.dtype))
        return out

    def learnable(self) -> list[nn.Parameter]:
        """Scale and shift, if the trained layer has them; none for a layer that is used more than once."""
        return [] if self.reused else [getattr(self, name) for name in self.learns]

    def _state(self) -> tuple[Tensor, ...]:
        return self.scale, self.shift, self.mean, self.var

    @torch.no_grad()
    def reset(self) -> None:
        """Goes back to the source."""
        self.recall([self.source_scale, self.source_shift, self.source_mean, self.source_var])

    @torch.no_grad()
    def settle(self) -> None:
        """Moves the running statistics toward what was measured, if it followed."""
        if self._measured is not None:
            for running, batch in zip((self.mean, self.var), self._measured, strict=True):
                running.lerp_(batch, self._share)
        self._passes, self._measured = 0, None

    def memory(self) -> list[Tensor]:
        """Copies of scale, shift and statistics."""
        return [tensor.detach().clone() for tensor in self._state()]

    @torch.no_grad()
    def recall(self, memory: list[Tensor]) -> None:
        """Goes back to those."""
        for tensor, value in zip(self._state(), memory, strict=True):
            tensor.copy_(value)
        self.scale.grad = self.shift.grad = None
        self._passes, self._measured = 0, None

    def learned(self) -> dict[str, Tensor]:
        """Scale, shift and statistics."""
        values: dict[str, Tensor] = {"running_mean": self.mean, "running_var": self.var}
        return values | {"weight": self.scale, "bias": self.shift} if self.learns else values

    def plain_values(self) -> dict[str, Tensor]:
        """The same in the trained layer's precision."""
        return {name: value.detach().to(self._dtype) for name, value in self.learned().items()}
