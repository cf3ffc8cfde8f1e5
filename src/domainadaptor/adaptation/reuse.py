"""Reuse: batches of one domain in a row share what the first of them taught."""

from typing import Any

import torch
from torch import Tensor

from domainadaptor.adaptation.adaptive_network import AdaptiveNetwork
from domainadaptor.adaptation.state import Stateful

_MOST = 4.0  # standard errors that a statistic of the pixels may differ by
_LESSONS = 2  # batches that are adapted to before their mean is reused; one alone fits its own images too well


class Reuse(Stateful):
    """Tell from their pixels whether batches are of one domain, and keep the mean of what the first of them taught.

    Pixels are compared by mean, contrast and sharpness of each image and channel.
    """

    kept = ("_images", "_sum", "_squares", "_largest", "_lessons", "_taught")
    _images = 0
    _sum: Tensor | None = None
    _squares: Tensor | None = None
    _largest = 0  # images of the largest batch that was adapted to
    _lessons = 0
    _taught: Any = None  # mean of the adapted tensors, and other state of the last lesson

    def knows(self, images: Tensor) -> bool:
        """Return whether enough was learned from batches that look like this one and are as large.

        A batch of another domain starts over.
        """
        if images.ndim != 4 or images.shape[-1] < 2:
            return False
        looks = _looks(images)
        if self._sum is None or self._squares is None or not self._is_near(looks, self._sum, self._squares):
            self.reset()
        total, squares = looks.sum(0), looks.square().sum(0)
        self._images += len(images)
        self._sum = total if self._sum is None else self._sum + total
        self._squares = squares if self._squares is None else self._squares + squares
        return self._lessons >= _LESSONS and len(images) <= self._largest

    def learn(self, network: AdaptiveNetwork, images: Tensor) -> None:
        """Add a network that was adapted to the batch that `knows` saw last."""
        tensors, kept = network.state_dict()
        if self._taught is not None and self._largest >= len(images):
            tensors = [a + (b - a) / (self._lessons + 1) for a, b in zip(self._taught[0], tensors, strict=True)]
            self._lessons += 1
        else:  # larger batches teach better
            self._lessons, self._largest = 1, len(images)
        self._taught = tensors, kept

    def teach(self, network: AdaptiveNetwork) -> None:
        """Write the mean into a network."""
        network.load_state_dict(self._taught)

    def _is_near(self, looks: Tensor, total: Tensor, squares: Tensor) -> bool:
        mean = total / self._images
        var = (squares / self._images - mean.square()).clamp(min=1e-6)
        error = (var * (1 / self._images + 1 / len(looks))).sqrt()
        return bool(((looks.mean(0) - mean).abs() <= _MOST * error).all())


def _looks(images: Tensor) -> Tensor:
    """Return mean, contrast and sharpness of each image and channel, (N, 3 * C), of images (N, C, H, W)."""
    pixels = images.detach().float()
    contrast = pixels.std((2, 3), correction=0)
    sharpness = (pixels[..., 1:] - pixels[..., :-1]).abs().mean((2, 3))
    return torch.cat([pixels.mean((2, 3)), (contrast + 1e-6).log(), (sharpness + 1e-6).log()], dim=1)
