"""Objectives: what an adaptor minimizes on a batch."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from domainadaptor.adaptation import losses
from domainadaptor.adaptation.adaptive_network import AdaptiveNetwork
from domainadaptor.adaptation.logits import in_loss_precision
from domainadaptor.adaptation.state import SeededGenerator, Stateful
from domainadaptor.augmentation.crops import random_views
from domainadaptor.profiling import VIEWS, phase

_PER_IMAGE = {"entropy": losses.entropy, "slr": losses.slr}
_WITH_TEMPERATURE = {"gem-t": losses.gem_t, "gem-skd": losses.gem_skd}


class Objective(Stateful, ABC):
    """An unsupervised loss of one batch. It may keep state between batches.

    Example:
        >>> class Margin(da.Objective):
        ...     \"\"\"Let the two largest logits differ.\"\"\"
        ...     def __call__(self, network, images, logits):
        ...         first, second = logits.topk(2).values.unbind(1)
        ...         return (second - first).mean()
        >>> da.StepAdaptor(network, norm=da.batch_only, objective=Margin())(images).shape
        torch.Size([8, 5])
    """

    idle = "there was nothing to learn from"  # why it returned None
    uses_logits = True  # if false, it runs its own passes and the logits carry no gradient
    needs_features = False  # whether it calls `network.features`
    rows_only = False  # whether it uses the logits alone, so that their rows may be pixels or labels

    @abstractmethod
    def __call__(self, network: AdaptiveNetwork, images: Tensor, logits: Tensor) -> Tensor | None:
        """Return the loss, a scalar in the graph; None if there is nothing to learn from.

        Args:
            network: The adaptive network; calling it runs another pass and returns logits.
            images: The batch.
            logits: The network's logits for the batch, in at least float32.
        """

    def after_step(self, network: AdaptiveNetwork, loss: Tensor) -> str | None:
        """Run after a step; return a reason to reset to the source model, or None."""
        return None


class LogitLoss(Objective):
    """The mean of a loss per image.

    Example:
        >>> objective = da.LogitLoss(da.entropy)
        >>> da.StepAdaptor(network, norm=da.batch_only, objective=objective)(images).shape
        torch.Size([8, 5])
    """

    rows_only = True

    def __init__(self, per_image: Callable[[Tensor], Tensor]) -> None:
        self.per_image = per_image

    def __call__(self, network: AdaptiveNetwork, images: Tensor, logits: Tensor) -> Tensor:
        """Return the mean over the batch."""
        return self.per_image(logits).mean()


class ViewsLoss(Objective):
    """GEM-Aug: the softened prediction is distilled from the mean logits of random views."""

    def __init__(self, *, temperature: str | float, scale: float, views: int, seed: int) -> None:
        self.temperature, self.scale, self.views = temperature, scale, views
        self._random = SeededGenerator(seed)

    def _parts(self) -> Sequence[Stateful]:
        return (self._random,)

    def __call__(self, network: AdaptiveNetwork, images: Tensor, logits: Tensor) -> Tensor:
        """Return the mean over the batch. Each call draws new views."""
        with phase(VIEWS), torch.no_grad():
            views = random_views(images, self.views, self._random.generator)
            target = in_loss_precision(network(views)).unflatten(0, (self.views, -1)).mean(0).softmax(1)
        heat = losses.temperature(logits, self.temperature, self.scale)
        return losses.gem_toward(target, logits, heat).mean()


class Confident(Objective):
    """Restrict an objective to images whose confidence in the first pass is above a threshold."""

    kept = ("_selected",)
    _selected: Tensor | None = None

    def __init__(self, inner: Objective, threshold: float) -> None:
        self.inner, self.threshold = inner, threshold
        self.idle = f"no image is predicted with a confidence above {threshold:g}"

    def __call__(self, network: AdaptiveNetwork, images: Tensor, logits: Tensor) -> Tensor | None:
        """Return the inner objective's loss. Later steps on the same batch use the same images."""
        if self._selected is None:
            self._selected = (logits.detach().softmax(1).amax(1) > self.threshold).nonzero().flatten()
        if len(self._selected) == 0:
            return None
        return self.inner(network, images[self._selected], logits[self._selected])

    def _parts(self) -> Sequence[Stateful]:
        return (self.inner,)

    def after_step(self, network: AdaptiveNetwork, loss: Tensor) -> str | None:
        """Run the inner objective's `after_step`."""
        return self.inner.after_step(network, loss)

    def end_batch(self) -> None:
        """Drop the selection of images."""
        self._selected = None
        super().end_batch()


def of_confident(objective: Objective, threshold: float | None) -> Objective:
    """Return the objective restricted to images above a confidence; unchanged without a threshold."""
    return objective if threshold is None else Confident(objective, threshold)


def build_objective(loss: str, *, temperature: str | float, scale: float, views: int, seed: int) -> Objective:
    """Return the objective of that name: a loss per image, a GEM loss, or "gem-aug"."""
    if loss in _PER_IMAGE:
        return LogitLoss(_PER_IMAGE[loss])
    if loss in _WITH_TEMPERATURE:
        return LogitLoss(partial(losses.with_temperature, _WITH_TEMPERATURE[loss], temperature, scale))
    return ViewsLoss(temperature=temperature, scale=scale, views=views, seed=seed)
