"""DELTA: renormalized batches, and rare classes weigh more. Zhao et al., ICLR 2023."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from domainadaptor.adaptation.adaptor import Adaptor
from domainadaptor.adaptation.ema_prediction import AveragePrediction
from domainadaptor.adaptation.losses import entropy
from domainadaptor.adaptation.objective import Forward, Objective
from domainadaptor.adaptation.optimizers import optimizer_called
from domainadaptor.adaptation.state import Part
from domainadaptor.adaptation.step import StepAdaptor
from domainadaptor.catalog import method
from domainadaptor.norms.renormalized import RenormalizedNorm
from domainadaptor.option_types import LearningRate, Momentum, Optimizer, Predict, ResetEvery, Share, Steps

__all__ = ["delta"]

LOSSES = ("entropy", "weighted-entropy", "pseudo-label")


@method(paper="Zhao et al., DELTA", year=2023, kind="statistics", forwards="1 (2 if it predicts after)", backwards="1")
def delta(
    network: nn.Module,
    *,
    loss: Literal["entropy", "weighted-entropy", "pseudo-label"] = "entropy",
    keep: Share = 0.95,
    balance: Share = 0.95,
    lr: LearningRate = 2.5e-4,
    optimizer: Optimizer = "sgd",
    momentum: Momentum = 0.9,
    steps: Steps = 1,
    reset_every: ResetEvery = None,
    predict: Predict = "before",
) -> Adaptor:
    """Running test statistics; rare classes weigh more.

    Args:
        network: Any trained network with batch normalization.
        loss: "entropy" as over Tent; "weighted-entropy" of images below half the largest entropy, weighted by
            confidence; or "pseudo-label" of images with a probability above 0.4.
        keep: Weight of the running statistics when a batch is added; 0 uses the last batch alone.
        balance: Weight of the running mean prediction, whose inverse weighs the classes; 1 weighs all alike.
    """
    return StepAdaptor(
        network,
        norm=partial(RenormalizedNorm, keep=keep),
        objective=_Balanced(loss, balance),
        optimizer=optimizer_called(optimizer, lr=lr, momentum=momentum),
        steps=steps,
        reset_every=reset_every,
        predict=predict,
    )


class _Balanced(Objective):
    """A mean loss in which an image weighs by the inverse of how often its class was predicted."""

    def __init__(self, loss: str, keep: float) -> None:
        self.loss = loss
        self._often = AveragePrediction(keep, uniform=True)

    def _parts(self) -> Sequence[Part]:
        return (self._often,)

    def __call__(self, forward: Forward, images: Tensor, logits: Tensor) -> Tensor | None:
        """The mean over the images used; None if there are none."""
        p = logits.detach().softmax(1)
        often = self._often.before(p)
        surest, own = p.max(1)
        weight = 1 / often.clamp(min=1e-12)[own]
        weight = weight / weight.mean()
        self._often.add(p)
        if self.loss == "pseudo-label":
            values, used = F.cross_entropy(logits, own, reduction="none"), surest > 0.4
        else:
            values = entropy(logits)
            used = torch.ones_like(own, dtype=torch.bool)
        if self.loss == "weighted-entropy":
            sure = (0.5 * math.log(p.shape[1]) - values.detach()).exp()
            weight, used = weight * sure, sure > 1
        return (weight * values)[used].mean() if bool(used.any()) else None
