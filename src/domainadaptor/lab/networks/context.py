"""The network of ARM-CML, which sees each image with a summary of its batch. Zhang et al., NeurIPS 2021."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from domainadaptor.errors import UnsupportedNetwork

_HIDDEN = 64


class ContextNetwork(nn.Module):
    """Adds channels to the images: the batch mean of the output of a small convolutional network."""

    def __init__(self, network: nn.Module, channels: int) -> None:
        super().__init__()
        self.channels = channels
        self.context = nn.Sequential(
            *(nn.Conv2d(3, _HIDDEN, 5, padding=2), nn.BatchNorm2d(_HIDDEN), nn.ReLU()),
            *(nn.Conv2d(_HIDDEN, _HIDDEN, 5, padding=2), nn.BatchNorm2d(_HIDDEN), nn.ReLU()),
            nn.Conv2d(_HIDDEN, channels, 5, padding=2),
        )
        self.network = network
        _widen(network, channels)

    def forward(self, images: Tensor, domains: Sequence[int] | None = None) -> Tensor:
        """Return the logits, with one summary for each number of consecutive images in `domains`."""
        seen = self.context(images).split(len(images) if domains is None else list(domains))
        summary = torch.cat([domain.mean(0, keepdim=True).expand_as(domain) for domain in seen])
        return self.network(torch.cat([images, summary], dim=1))  # type: ignore[no-any-return]


def _widen(network: nn.Module, channels: int) -> None:
    """Add input channels to the first convolution; their weights repeat those of red, green and blue."""
    first = next((module for module in network.modules() if isinstance(module, nn.Conv2d)), None)
    if first is None or first.in_channels != 3 or first.groups != 1:
        raise UnsupportedNetwork("expected a first convolution on three channels to add context to, found none")
    tiled = [first.weight[:, at % 3] for at in range(3 + channels)]
    first.weight = nn.Parameter(torch.stack(tiled, dim=1).detach().clone())
    first.in_channels += channels
