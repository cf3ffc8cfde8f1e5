"""Supports: the confident features of a stream, from which T3A and TSD make class prototypes."""

from typing import NamedTuple

import torch
from torch import Tensor

from domainadaptor import entropy


class Supports(NamedTuple):
    """Features with what the head made of them, one row each; replaced, never written to."""

    features: Tensor  # (M, D)
    probabilities: Tensor  # (M, K)
    entropies: Tensor  # (M,)
    labels: Tensor  # (M,)

    @classmethod
    def of(cls, features: Tensor, logits: Tensor) -> "Supports":
        """Return the supports of a batch."""
        return cls(features, logits.softmax(1), entropy(logits), logits.argmax(1))

    def add(self, new: "Supports", keep: int | None) -> "Supports":
        """Return old and new ones; of each class the `keep` with the lowest entropy, or all."""
        every = Supports(*(torch.cat([old.to(part), part]) for old, part in zip(self, new, strict=True)))
        if keep is None:
            return every
        order = every.entropies.argsort(stable=True)
        chosen = [order[every.labels[order] == label][:keep] for label in range(every.probabilities.shape[1])]
        return Supports(*(part[torch.cat(chosen)] for part in every))
