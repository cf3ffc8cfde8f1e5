"""Predictor: turns the logits and features of a batch into other logits."""

from abc import ABC, abstractmethod

from torch import Tensor, nn

from domainadaptor.adaptation.state import Stateful


class Predictor(Stateful, ABC):
    """Answer instead of the network's head. It may keep state between batches."""

    needs_features = True

    @abstractmethod
    def __call__(self, logits: Tensor, features: Tensor | None, head: nn.Linear | None) -> Tensor:
        """Return new logits, (N, K). The head is the network's own and must not be changed."""
