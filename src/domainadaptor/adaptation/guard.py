"""CollapseGuard: notices from predictions and weights alone that an adaptor is losing what the network knew."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from domainadaptor.adaptation.logits import in_loss_precision
from domainadaptor.adaptation.losses import entropy
from domainadaptor.adaptation.part import Part

_WINDOW = 256  # images, or four per class
_STRAY = 0.006, 0.07  # how far weights may go, relative to their size, under fixed and under batch statistics
_FAR = 0.3  # how far they may go at all
_POOR, _FRACTION = (
    0.2,
    0.25,
)  # predictions this poor are compared with the source's; below this part of them is collapse

Seen = tuple[Tensor, float, int]


class Drift(NamedTuple):
    """How far weights are from the source, and under which statistics that matters."""

    far: float  # relative to the size of the source's
    batch: float  # how much of the statistics that layers normalize with is the batch's own, from 0 to 1


class CollapseGuard(Part):
    """Says when to go back to the source: predictions tell images apart too badly for how far the weights have gone.

    What predictions tell is the entropy of their mean less their mean entropy, over the last 256 images or four times
    the number of classes, as a part of the most that so many classes allow: 1 if they are sure and varied, 0 if all are
    alike. Both ways to collapse, one answer for everything and no answer at all, bring it down; ordinary batches of a
    network that works have 0.4 to 1. With t for it, weights may go s / (1 - t) away from the source, as a part of its
    size, and never more than 0.3. s is 0.07 where layers normalize with the statistics of the batch, which undoes much
    of what weights do, and 0.006 where they do not. So a network whose answers stay good learns on, while noise,
    constant images or one class at a time end it before it loses much. No matter how near the weights are, it is also
    collapse where t is below 0.2 and the batch itself tells less than a quarter of what the source network makes of it.

    Statistics that follow the stream are not watched: they come back with ordinary images.
    """

    def __init__(self) -> None:
        self._seen: Seen | None = None  # the mean prediction, the mean entropy, how many images

    def look(self, logits: Tensor, drift: Drift, source: Callable[[], Tensor]) -> str | None:
        """Takes in a batch's answer; why it is time to go back, or None.

        Args:
            logits: The answer.
            drift: How far the weights are from the source.
            source: Gives the source network's own answer for the batch.
        """
        told = self._told(in_loss_precision(logits.detach()))
        stray = drift.batch * _STRAY[1] + (1 - drift.batch) * _STRAY[0]
        limit = min(_FAR, stray / max(1 - told, 1e-6))
        if not drift.far <= limit:  # nor if it is not a number
            return (
                f"the guard went back to the source: the weights are {drift.far:.3f} of their size away from it, and "
                f"with predictions that tell {told:.2f} of what they could, {limit:.3f} is the limit"
            )
        if told < _POOR:
            mine, theirs = (_information(*_means(in_loss_precision(z.detach())), len(z)) for z in (logits, source()))
            if theirs > _POOR and mine < _FRACTION * theirs:
                return (
                    f"the guard went back to the source: predictions tell {mine:.2f} of what they could, the source "
                    f"network's {theirs:.2f}"
                )
        return None

    def _told(self, logits: Tensor) -> float:
        mean, sureness = _means(logits)
        count = len(logits)
        if self._seen is not None:
            old, old_sureness, seen = self._seen
            count = min(seen + len(logits), max(_WINDOW, 4 * logits.shape[1]))
            share = min(1.0, len(logits) / count)
            mean = (1 - share) * old.to(mean) + share * mean
            sureness = (1 - share) * old_sureness + share * sureness
        self._seen = (mean, sureness, count)
        return _information(*self._seen)

    def reset(self) -> None:
        """No image was seen."""
        self._seen = None

    def memory(self) -> Seen | None:
        """What was seen."""
        return self._seen  # never written to, only replaced

    def recall(self, memory: Seen | None) -> None:
        """Goes back to that."""
        self._seen = memory


def _means(logits: Tensor) -> tuple[Tensor, float]:
    """The mean prediction and the mean entropy of a batch."""
    return logits.softmax(1).mean(0), entropy(logits).nan_to_num().mean().item()


def _information(mean: Tensor, sureness: float, images: int) -> float:
    """From 0 to 1; one image alone cannot be told from others."""
    most = math.log(min(images, len(mean)))
    if most == 0:
        return 0.0
    variety = float(torch.special.entr(mean).sum())
    return min(1.0, max(0.0, (variety - sureness) / most))
