"""Instance-aware batch norm, which a network is trained with for NOTE. Gong et al., NeurIPS 2022."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from domainadaptor.errors import UnsupportedNetwork

# By name, so that timm need not be imported.
_EXCHANGED = ("torch.nn.modules.batchnorm.BatchNorm2d", "timm.layers.norm_act.BatchNormAct2d")
_IMAGES = (nn.BatchNorm2d, nn.SyncBatchNorm)


class InstanceAwareBatchNorm2d(nn.BatchNorm2d):
    """Normalizes each image by the batch's statistics, moved toward its own where those are too far off.

    "Too far" is more than `band` standard errors of an image's mean and variance under the batch's.
    """

    band = 4.0

    def forward(self, x: Tensor) -> Tensor:
        """The normalized map; in train mode the running statistics are updated as batch norm does it."""
        # An image of one pixel has no variance of its own.
        out = self._normalized(x) if x.shape[2] * x.shape[3] > 1 else super().forward(x)
        for after in self.children():  # timm's layers hold the activation that follows
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
    """Images of more than one pixel, normalized by these statistics, moved toward their own beyond the band."""
    pixels = x.shape[2] * x.shape[3]
    own_var, own_mean = torch.var_mean(x, dim=(2, 3), unbiased=True)
    # With eps, as in the authors' program: the slope of the root is infinite for a channel that is constant.
    mean_error = ((var + eps) / pixels).sqrt()
    var_error = (var + eps) * (2 / (pixels - 1)) ** 0.5
    mean = mean + _beyond(own_mean - mean, band * mean_error)
    var = F.relu(var + _beyond(own_var - var, band * var_error))
    scale = (var + eps).rsqrt()
    return (x - mean[..., None, None]) * scale[..., None, None]


def make_instance_aware(network: nn.Module) -> None:
    """Exchanges every BatchNorm2d of a network, and timm's with activation, for an instance-aware one.

    Raises:
        UnsupportedNetwork: There is none, or another kind of batch norm for images.
    """
    layers = [layer for layer in network.modules() if _name(layer) in _EXCHANGED]
    others = {type(m).__name__ for m in network.modules() if isinstance(m, _IMAGES) and m not in layers}
    if others or not layers:
        raise UnsupportedNetwork(
            f"{type(network).__name__} cannot be made instance-aware: expected plain BatchNorm2d layers (or timm's "
            f"BatchNormAct2d), got {', '.join(sorted(others)) or 'none'}; train it with --norm batch"
        )
    for layer in layers:
        # The class alone differs: references, hooks and names of the tensors stay.
        layer.__class__ = InstanceAwareBatchNorm2d


def _name(layer: nn.Module) -> str:
    return f"{type(layer).__module__}.{type(layer).__qualname__}"


def _beyond(distance: Tensor, band: Tensor) -> Tensor:
    """What of a distance lies beyond a band around zero."""
    return distance.sign() * F.relu(distance.abs() - band)
