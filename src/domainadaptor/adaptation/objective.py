"""What an adaptor minimizes on a batch: a loss of its logits, or one that needs further passes of the network."""

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from domainadaptor.adaptation import losses
from domainadaptor.adaptation.logits import in_loss_precision
from domainadaptor.adaptation.part import Part
from domainadaptor.adaptation.views import random_views

Forward = Callable[[Tensor], Tensor]

_PER_IMAGE = {"entropy": losses.entropy, "slr": losses.slr}
_HEATED = {"gem-t": losses.gem_t, "gem-skd": losses.gem_skd}
LOSSES = (*_PER_IMAGE, *_HEATED, "gem-aug")


class Objective(Part):
    """An unsupervised loss of one batch, which may remember earlier batches."""

    @abstractmethod
    def __call__(self, forward: Forward, images: Tensor, logits: Tensor) -> Tensor | None:
        """The loss of the logits that `forward` gave for the images, a scalar in the graph; None: nothing to learn."""

    def reset(self) -> None:
        """Remembers nothing."""

    def memory(self) -> Any:
        """Nothing."""
        return None

    def recall(self, memory: Any) -> None:
        """Nothing to go back to."""


class LogitLoss(Objective):
    """The mean of a loss per image."""

    def __init__(self, per_image: Callable[[Tensor], Tensor]) -> None:
        self.per_image = per_image

    def __call__(self, forward: Forward, images: Tensor, logits: Tensor) -> Tensor:
        """The mean over the batch."""
        return self.per_image(logits).mean()


class ViewsLoss(Objective):
    """GEM-Aug: the hot prediction learns from the mean logits of random views of each image."""

    def __init__(self, *, temperature: str | float, scale: float, views: int, seed: int) -> None:
        self.temperature = temperature
        self.scale = scale
        self.views = views
        self.seed = seed
        self.reset()

    def __call__(self, forward: Forward, images: Tensor, logits: Tensor) -> Tensor:
        """The mean over the batch; each call draws new views."""
        with torch.no_grad():
            views = random_views(images, self.views, self._generator)
            target = in_loss_precision(forward(views)).unflatten(0, (self.views, -1)).mean(0).softmax(1)
        heat = losses.temperature(logits, self.temperature, self.scale)
        return losses.gem_toward(target, logits, heat).mean()

    def reset(self) -> None:
        """Draws the same views as at first; on the CPU, so that every device draws the same."""
        self._generator = torch.Generator("cpu").manual_seed(self.seed)

    def memory(self) -> Tensor:
        """Which views are next."""
        return self._generator.get_state()

    def recall(self, memory: Tensor) -> None:
        """Goes back to those."""
        self._generator.set_state(memory)


def build_objective(loss: str, *, temperature: str | float, scale: float, views: int, seed: int) -> Objective:
    """The objective called `loss`, one of LOSSES."""
    if loss in _PER_IMAGE:
        return LogitLoss(_PER_IMAGE[loss])
    if loss in _HEATED:
        return LogitLoss(partial(losses.heated, _HEATED[loss], temperature, scale))
    return ViewsLoss(temperature=temperature, scale=scale, views=views, seed=seed)
