"""What an adaptor minimizes on a batch: a loss of its logits, or one that needs further passes of the network."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from domainadaptor.adaptation import losses
from domainadaptor.adaptation.logits import in_loss_precision
from domainadaptor.adaptation.state import Draws, Part
from domainadaptor.augmentation.crops import random_views
from domainadaptor.options import check_number
from domainadaptor.profiling import VIEWS, phase

Forward = Callable[[Tensor], Tensor]

_PER_IMAGE = {"entropy": losses.entropy, "slr": losses.slr}
_HEATED = {"gem-t": losses.gem_t, "gem-skd": losses.gem_skd}
LOSSES = (*_PER_IMAGE, *_HEATED, "gem-aug")


class Objective(Part):
    """An unsupervised loss of one batch, which may remember earlier batches."""

    idle = "there was nothing to learn from"  # why it gave None
    reads_features = False  # true: `forward` gives what the head is given, and the logits carry no gradient

    @abstractmethod
    def __call__(self, forward: Forward, images: Tensor, logits: Tensor) -> Tensor | None:
        """The loss of the logits that `forward` gave for the images, a scalar in the graph; None: nothing to learn."""

    def _parts(self) -> Sequence[Part]:
        """What of it remembers earlier batches."""
        return ()

    def reset(self) -> None:
        """Remembers nothing."""
        for part in self._parts():
            part.reset()

    def memory(self) -> Any:
        """Copies of what its parts remember."""
        return [part.memory() for part in self._parts()]

    def recall(self, memory: Any) -> None:
        """They go back to it."""
        for part, held in zip(self._parts(), memory, strict=True):
            part.recall(held)


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
        self._draws = Draws(seed)

    def _parts(self) -> Sequence[Part]:
        return (self._draws,)

    def __call__(self, forward: Forward, images: Tensor, logits: Tensor) -> Tensor:
        """The mean over the batch; each call draws new views."""
        with phase(VIEWS), torch.no_grad():
            views = random_views(images, self.views, self._draws.generator)
            target = in_loss_precision(forward(views)).unflatten(0, (self.views, -1)).mean(0).softmax(1)
        heat = losses.temperature(logits, self.temperature, self.scale)
        return losses.gem_toward(target, logits, heat).mean()


class Confident(Objective):
    """Another objective, of those images alone whose confidence in the first pass is above a threshold."""

    def __init__(self, inner: Objective, threshold: float) -> None:
        self.inner = inner
        self.threshold = threshold
        self.idle = f"no image is predicted with a confidence above {threshold:g}"
        self._chosen: Tensor | None = None

    def __call__(self, forward: Forward, images: Tensor, logits: Tensor) -> Tensor | None:
        """The other's loss; later steps on the same batch take the same images."""
        if self._chosen is None:
            self._chosen = (logits.detach().softmax(1).amax(1) > self.threshold).nonzero().flatten()
        if len(self._chosen) == 0:
            return None
        return self.inner(forward, images[self._chosen], logits[self._chosen])

    def settle(self) -> None:
        """The next batch has a first pass of its own."""
        self._chosen = None
        self.inner.settle()

    def reset(self) -> None:
        """What the other remembers, and which images were chosen."""
        self._chosen = None
        self.inner.reset()

    def memory(self) -> Any:
        """The other's."""
        return self.inner.memory()

    def recall(self, memory: Any) -> None:
        """The other goes back."""
        self._chosen = None
        self.inner.recall(memory)


def check_threshold(threshold: object) -> None:
    """Refuses what is neither None nor a confidence."""
    if threshold is not None:
        check_number("threshold", threshold, low=0, high=1)


def of_confident(objective: Objective, threshold: float | None) -> Objective:
    """The objective of images above a confidence; of all, where there is no threshold."""
    return objective if threshold is None else Confident(objective, float(threshold))


def build_objective(loss: str, *, temperature: str | float, scale: float, views: int, seed: int) -> Objective:
    """The objective called `loss`, one of LOSSES."""
    if loss in _PER_IMAGE:
        return LogitLoss(_PER_IMAGE[loss])
    if loss in _HEATED:
        return LogitLoss(partial(losses.heated, _HEATED[loss], temperature, scale))
    return ViewsLoss(temperature=temperature, scale=scale, views=views, seed=seed)
