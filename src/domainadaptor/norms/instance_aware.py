"""Instance-aware batch norm, which a network is trained with for NOTE. Gong et al., NeurIPS 2022."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from domainadaptor.errors import UnsupportedNetwork


class InstanceAwareBatchNorm2d(nn.BatchNorm2d):
    """Normalizes each image by the batch's statistics, moved toward its own where those are too far off.

    "Too far" is more than `band` standard errors of an image's mean and variance under the batch's.
    """

    band = 4.0

    def forward(self, x: Tensor) -> Tensor:
        """The normalized map; in train mode the running statistics are updated as batch norm does it."""
        pixels = x.shape[2] * x.shape[3]
        if pixels <= 1:  # an image has no variance of its own
            return super().forward(x)
        if self.training:
            var, mean = torch.var_mean(x, dim=(0, 2, 3), unbiased=True)
            self._track(mean.detach(), var.detach())
        else:
            assert self.running_mean is not None
            assert self.running_var is not None
            mean, var = self.running_mean, self.running_var
        own_var, own_mean = torch.var_mean(x, dim=(2, 3), unbiased=True)
        mean_error = (var / pixels).sqrt()
        var_error = var * (2 / (pixels - 1)) ** 0.5
        mean = mean + _beyond(own_mean - mean, self.band * mean_error)
        var = F.relu(var + _beyond(own_var - var, self.band * var_error))
        scale = (var + self.eps).rsqrt()
        out = (x - mean[..., None, None]) * scale[..., None, None]
        return out * self.weight.view(-1, 1, 1) + self.bias.view(-1, 1, 1) if self.affine else out

    @torch.no_grad()
    def _track(self, mean: Tensor, var: Tensor) -> None:
        if not self.track_running_stats or self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked += 1
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, share)
        self.running_var.lerp_(var, share)


def make_instance_aware(network: nn.Module) -> None:
    """Exchanges every BatchNorm2d of a network for an instance-aware one with the same tensors.

    Raises:
        UnsupportedNetwork: There is none.
    """
    layers = [layer for layer in network.modules() if type(layer) is nn.BatchNorm2d]
    if not layers:
        raise UnsupportedNetwork(f"{type(network).__name__} has no plain BatchNorm2d to be made instance-aware")
    for layer in layers:
        # The class alone differs: references, hooks and names of the tensors stay.
        layer.__class__ = InstanceAwareBatchNorm2d


def _beyond(distance: Tensor, band: Tensor) -> Tensor:
    """What of a distance lies beyond a band around zero."""
    return distance.sign() * F.relu(distance.abs() - band)
