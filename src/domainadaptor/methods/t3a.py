"""T3A: class templates from confident features of the stream. Iwasawa and Matsuo, NeurIPS 2021."""

from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from domainadaptor import Adaptor, Option, Predictor, StepAdaptor, batch_only, method
from domainadaptor import option_types as t
from domainadaptor.methods._supports import Supports

__all__ = ["t3a"]

Keep = Annotated[Literal[-1] | int, Option(ge=1)]


class Templates(Predictor):
    """Predict by the product of features with the mean direction of each class's supports.

    The supports start with the rows of the head. With keep=None, the authors' program still drops the worst support of
    each class; this one keeps all.
    """

    kept = ("_held",)
    _held: Supports | None = None

    def __init__(self, keep: int | None) -> None:
        self.keep = keep

    def __call__(self, logits: Tensor, features: Tensor | None, head: nn.Linear | None) -> Tensor:
        """Add the batch to the supports, then predict it without the head's bias."""
        assert features is not None
        assert head is not None
        weight = head.weight.detach().to(features)
        bias = None if head.bias is None else head.bias.detach().to(features)
        rows = Supports.of(weight, F.linear(weight, weight, bias)) if self._held is None else self._held
        self._held = held = rows.add(Supports.of(features, logits), self.keep)
        directions = F.normalize(held.features, dim=1)
        templates = torch.zeros_like(weight).index_add_(0, held.labels, directions)
        return features @ F.normalize(templates, dim=1).T


@method(
    paper="Iwasawa and Matsuo, T3A",
    year=2021,
    kind="prediction",
    forwards="1",
    needs=("features and a linear head",),
)
def t3a(
    network: nn.Module,
    *,
    keep: Keep = 100,
    reset_every: t.ResetEvery = None,
    statistics: t.Statistics = "source",
    head: t.Head = None,
) -> Adaptor:
    """Rebuild the classifier from confident features.

    The features are of any stream: hostile batches can cost a few points, also with guard=True.

    Args:
        network: Any trained network that ends in a linear layer.
        keep: Features stored per class, those with the lowest entropy; -1 stores all.
    """
    return StepAdaptor(
        network,
        norm=None if statistics == "source" else batch_only,
        reset_every=reset_every,
        predictor=Templates(None if keep == -1 else keep),
        head=head,
    )
