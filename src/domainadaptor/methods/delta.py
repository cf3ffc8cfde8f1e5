"""DELTA: renormalized batches, and rare classes weigh more. Zhao et al., ICLR 2023."""

import math
from collections.abc import Sequence
from functools import partial

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
from domainadaptor.method_card import about
from domainadaptor.norms.renormalized import RenormalizedNorm
from domainadaptor.options import check_choice, check_count, check_number

__all__ = ["delta"]

LOSSES = ("entropy", "weighted-entropy", "pseudo-label")


@about("Zhao et al., DELTA", 2023, "statistics", forwards="1 (2 if it predicts after)", backwards="1")
def delta(
    network: nn.Module,
    *,
    loss: str = "entropy",
    keep: float = 0.95,
    balance: float = 0.95,
    lr: float = 2.5e-4,
    optimizer: str = "sgd",
    momentum: float = 0.9,
    steps: int = 1,
    reset_every: int | None = None,
    predict: str = "before",
) -> Adaptor:
    """Averages over the test batches in every batch norm, and a step in which rare classes weigh more.

    Args:
        network: Any trained network with batch normalization.
        loss: "entropy" (over Tent), "weighted-entropy" (of images below half the largest entropy, the surest weighing
            most), or "pseudo-label" (of images with a class above 0.4).
        keep: How much of the average statistics is kept when a batch is taken in; 0 is the last batch alone.
        balance: How much of the average prediction is kept, by whose inverse classes weigh; 1 weighs all alike.
        lr: The learning rate.
        optimizer: "sgd" as its authors, or "adam".
        momentum: Of "sgd"; Adam's first.
        steps: How many steps each batch gets.
        reset_every: After how many batches everything is forgotten: None never, 1 after each (the paper's protocol).
        predict: "before" the step as its authors, or "after" it with one more pass (the paper's protocol).
    """
    check_choice("loss", loss, LOSSES)
    check_number("keep", keep, low=0, high=1)
    check_number("balance", balance, low=0, high=1)
    check_count("steps", steps, low=1)
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
