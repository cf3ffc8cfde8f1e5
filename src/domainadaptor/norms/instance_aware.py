"""Instance-aware batch normalization, with which networks are trained for NOTE. Gong et al., NeurIPS 2022."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from domainadaptor.errors import UnsupportedNetwork

# By name, so that timm is not imported.
_REPLACED = ("torch.nn.modules.batchnorm.BatchNorm2d", "timm.layers.norm_act.BatchNormAct2d")
_IMAGES = (nn.BatchNorm2d, nn.SyncBatchNorm)


class InstanceAwareBatchNorm2d(nn.BatchNorm2d):
    """Normalize each image with batch statistics, corrected toward its own statistics where those differ too much.

    The correction starts at `band` standard errors of an image's mean and variance.
    """

    band = 4.0

    def forward(self, x: Tensor) -> Tensor:
        """Normalize a batch; in train mode, update the running statistics as batch norm does."""
        # An image of one pixel has no variance.
        out = self._normalized(x) if x.shape[2] * x.shape[3] > 1 else super().forward(x)
        for after in self.children():  # timm's layers contain the activation
            out = after(out)
        return out

    def _normalized(self, images: Tensor) -> Tensor:
        x = images.float() if images.dtype in (torch.float16, torch.bfloat16) else images
        if self.training or self.running_mean is None or self.running_var is None:
            var, mean = torch.var_mean(x, dim=(0, 2, 3), unbiased=True)
            self._track(mean.detach(), var.detach())
        else:
            mean, var = self.running_mean, self.running_var
        out = corrected(x, mean, var, self.eps, self.band)
        if self.affine:
            out = out * self.weight.view(-1, 1, 1) + self.bias.view(-1, 1, 1)
        return out.to(images.dtype)

    @torch.no_grad()
    def _track(self, mean: Tensor, var: Tensor) -> None:
        if not self.track_running_stats or self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked += 1
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, share)
        self.running_var.lerp_(var, share)


def corrected(x: Tensor, mean: Tensor, var: Tensor, eps: float, band: float) -> Tensor:
    """Normalize images of more than one pixel, with statistics corrected toward their own beyond the band."""
    pixels = x.shape[2] * x.shape[3]
    own_var, own_mean = torch.var_mean(x, dim=(2, 3), unbiased=True)
    # With eps, as in the authors' program: the root has no finite slope at the zero variance of a constant channel.
    mean_error = ((var + eps) / pixels).sqrt()
    var_error = (var + eps) * (2 / (pixels - 1)) ** 0.5
    mean = mean + _beyond(own_mean - mean, band * mean_error)
    var = F.relu(var + _beyond(own_var - var, band * var_error))
    scale = (var + eps).rsqrt()
    return (x - mean[..., None, None]) * scale[..., None, None]


def make_instance_aware(network: nn.Module) -> None:
    """Make every BatchNorm2d of a network, and timm's with activation, instance-aware in place.

    Raises:
        UnsupportedNetwork: There is none, or another kind of 2d batch norm.
    """
    layers = [
        layer for layer in network.modules() if f"{type(layer).__module__}.{type(layer).__qualname__}" in _REPLACED
    ]
    others = {type(m).__name__ for m in network.modules() if isinstance(m, _IMAGES) and m not in layers}
    if others or not layers:
        raise UnsupportedNetwork(
            f"{type(network).__name__} cannot be made instance-aware: expected BatchNorm2d layers (or timm's "
            f"BatchNormAct2d), got {', '.join(sorted(others)) or 'none'}. Train it with --norm batch."
        )
    for layer in layers:
        layer.__class__ = InstanceAwareBatchNorm2d  # keeps references, hooks and tensor names


def _beyond(distance: Tensor, band: Tensor) -> Tensor:
    """Return the part of a distance beyond a band around zero."""
    return distance.sign() * F.relu(distance.abs() - band)
