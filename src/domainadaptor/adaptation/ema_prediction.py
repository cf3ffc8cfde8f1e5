"""The average prediction over batches, which several methods weigh images by."""

import torch
from torch import Tensor

from domainadaptor.adaptation.state import Part


class AveragePrediction(Part):
    """A moving average of mean probabilities.

    Args:
        keep: How much of it stays when a batch is taken in.
        uniform: Whether it begins with all classes alike; otherwise with the first batch.
    """

    def __init__(self, keep: float, *, uniform: bool) -> None:
        self.keep = keep
        self.uniform = uniform
        self._held: Tensor | None = None

    @property
    def empty(self) -> bool:
        """Whether no batch was taken in yet."""
        return self._held is None

    def before(self, probabilities: Tensor) -> Tensor:
        """The average (K,) of the batches before this one, (N, K): uniform if there were none."""
        if self._held is None:
            return torch.full_like(probabilities[0], 1 / probabilities.shape[1])
        return self._held.to(probabilities)

    def add(self, probabilities: Tensor) -> None:
        """Takes a batch in."""
        mean = probabilities.mean(0)
        first = self.empty and not self.uniform
        self._held = mean if first else self.keep * self.before(probabilities) + (1 - self.keep) * mean

    def reset(self) -> None:
        """No batch was seen."""
        self._held = None

    def memory(self) -> Tensor | None:
        """The average, which is replaced and never written to."""
        return self._held

    def recall(self, memory: Tensor | None) -> None:
        """Goes back to it."""
        self._held = memory
