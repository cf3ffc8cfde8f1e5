"""Predictor: turns features and logits of a batch into other logits, and may remember earlier batches."""

from abc import abstractmethod
from typing import Any

from torch import Tensor, nn

from domainadaptor.adaptation.state import Part


class Predictor(Part):
    """What answers in place of the network's head."""

    @abstractmethod
    def __call__(self, logits: Tensor, features: Tensor, head: nn.Linear) -> Tensor:
        """New logits, (N, K); the head is the network's own, and must not be changed."""

    def reset(self) -> None:
        """Remembers nothing."""

    def memory(self) -> Any:
        """Nothing."""
        return None

    def recall(self, memory: Any) -> None:
        """Nothing to go back to."""
