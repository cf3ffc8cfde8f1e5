"""Moving averages: of weights, for teachers, and of predictions, which several methods weight images by."""

import torch
from torch import Tensor

from domainadaptor.adaptation.adaptive_network import AdaptiveNetwork
from domainadaptor.adaptation.state import Stateful


@torch.no_grad()
def update_ema(teacher: AdaptiveNetwork, student: AdaptiveNetwork, share: float) -> None:
    """Move every learned weight of the teacher toward the student's by a share of the way; statistics stay.

    Example:
        >>> from domainadaptor.methods.cotta import Cotta  # its teacher follows its student
        >>> Cotta(network, views=1, ema=0.99)(images).shape
        torch.Size([8, 5])
    """
    slow, fast = teacher.learnable(), student.learnable()
    for name in slow.keys() & fast.keys():  # a layer may be used more than once by one batch and not by another
        slow[name].copy_((1 - share) * slow[name] + share * fast[name])


class EmaPrediction(Stateful):
    """A moving average of mean probabilities.

    Args:
        keep: The weight of the old average when a batch is added.
        uniform: Whether it begins with uniform probabilities; otherwise with the first batch.

    Example:
        >>> average = da.EmaPrediction(0.9, uniform=True)
        >>> average.before(torch.rand(8, 4))
        tensor([0.2500, 0.2500, 0.2500, 0.2500])
        >>> average.add(torch.eye(4))
    """

    kept = ("_average",)
    _average: Tensor | None = None

    def __init__(self, keep: float, *, uniform: bool) -> None:
        self.keep = keep
        self.uniform = uniform

    @property
    def empty(self) -> bool:
        """Whether no batch was added yet."""
        return self._average is None

    def before(self, probabilities: Tensor) -> Tensor:
        """Return the average (K,) of the batches before this one, (N, K); uniform if there were none."""
        if self._average is None:
            return torch.full_like(probabilities[0], 1 / probabilities.shape[1])
        return self._average.to(probabilities)

    def add(self, probabilities: Tensor) -> None:
        """Add a batch."""
        mean = probabilities.mean(0)
        first = self.empty and not self.uniform
        self._average = mean if first else self.keep * self.before(probabilities) + (1 - self.keep) * mean
