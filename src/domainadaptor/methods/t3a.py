"""T3A: class templates from confident features of the stream. Iwasawa and Matsuo, NeurIPS 2021."""

from typing import Annotated, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from domainadaptor import Adaptor, Option, Predictor, StepAdaptor, batch_only, entropy, method
from domainadaptor import option_types as t

__all__ = ["t3a"]

Keep = Annotated[Literal[-1] | int, Option(ge=1)]


class _Supports(NamedTuple):
    """The stored features; never written to, always replaced."""

    features: Tensor  # (S, D)
    labels: Tensor  # (S,), the head's predictions
    entropies: Tensor  # (S,)

    def to(self, like: Tensor) -> "_Supports":
        return _Supports(self.features.to(like), self.labels.to(like.device), self.entropies.to(like))


class Templates(Predictor):
    """Predict by the product of features with the mean direction of each class's supports.

    The supports start with the rows of the head. With keep=-1, the authors' program still drops the worst support of
    each class; this one keeps all.
    """

    kept = ("_held",)
    _held: _Supports | None = None

    def __init__(self, keep: int) -> None:
        self.keep = keep

    def __call__(self, logits: Tensor, features: Tensor | None, head: nn.Linear | None) -> Tensor:
        """Add the batch to the supports, then predict it without the head's bias."""
        assert features is not None
        assert head is not None
        weight = head.weight.detach().to(features)
        bias = None if head.bias is None else head.bias.detach().to(features)
        held = _supports(weight, F.linear(weight, weight, bias)) if self._held is None else self._held.to(features)
        new = _supports(features, logits)
        joined = _Supports(*(torch.cat(pair) for pair in zip(held, new, strict=True)))
        self._held = best = self._best(joined, len(weight))
        directions = F.normalize(best.features, dim=1)
        templates = torch.zeros_like(weight).index_add_(0, best.labels, directions)
        return features @ F.normalize(templates, dim=1).T

    def _best(self, supports: _Supports, classes: int) -> _Supports:
        if self.keep == -1:
            return supports
        order = supports.entropies.sort(stable=True).indices
        chosen = torch.cat([order[supports.labels[order] == label][: self.keep] for label in range(classes)])
        return _Supports(*(part[chosen] for part in supports))


def _supports(features: Tensor, logits: Tensor) -> _Supports:
    return _Supports(features, logits.argmax(1), entropy(logits))


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

    Args:
        network: Any trained network that ends in a linear layer.
        keep: Features stored per class, those with the lowest entropy; -1 stores all.
    """
    return StepAdaptor(
        network,
        norm=None if statistics == "source" else batch_only,
        reset_every=reset_every,
        predictor=Templates(keep),
        head=head,
    )
