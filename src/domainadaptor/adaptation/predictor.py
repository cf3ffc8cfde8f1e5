"""Features, the input of a network's linear head, and predictors, which replace the head."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from domainadaptor.adaptation.state import Stateful
from domainadaptor.errors import UnsupportedNetwork


class Predictor(Stateful, ABC):
    """Compute the logits in place of the network's head. It may keep state between batches.

    Example:
        >>> class Sharper(da.Predictor):
        ...     \"\"\"Double the logits.\"\"\"
        ...     needs_features = False
        ...     def __call__(self, logits, features, head):
        ...         return 2 * logits
        >>> da.StepAdaptor(network, predictor=Sharper())(images).shape
        torch.Size([8, 5])
    """

    needs_features = True

    @abstractmethod
    def __call__(self, logits: Tensor, features: Tensor | None, head: nn.Linear | None) -> Tensor:
        """Return new logits, (N, K). The head is the network's own and must not be changed."""


def find_head(network: nn.Module, name: str | None = None) -> str:
    """Return the name of the head: the given name if it is a linear layer, or the last linear layer.

    Raises:
        UnsupportedNetwork: There is no such layer.
    """
    linear = [found for found, module in network.named_modules() if isinstance(module, nn.Linear)]
    if name is not None and name not in linear:
        raise UnsupportedNetwork(f"head={name!r} is not a linear layer of the network; it has {linear or 'none'}")
    if not linear:
        raise UnsupportedNetwork(
            f"{type(network).__name__} has no linear layer, but this method needs the features that enter one."
        )
    return name or linear[-1]


class FeatureTap:
    """A forward hook that keeps the input and output of the head until the batch ends."""

    def __init__(self, network: nn.Module, name: str) -> None:
        self.name = name
        head = network.get_submodule(name)
        assert isinstance(head, nn.Linear)
        self.head = head
        self.head.register_forward_hook(self)
        self._held: tuple[Tensor, Tensor] | None = None
        self._verified = False

    def __call__(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        """Keep the input and output of the head."""
        self._held = inputs[0], output

    def verify(self, logits: Tensor) -> None:
        """Raise UnsupportedNetwork, on the first pass, if the logits are not the head's output."""
        if not self._verified and (self._held is None or not _equal(self._held[1], logits)):
            raise UnsupportedNetwork(
                f"The logits are not the output of the linear layer {self.name!r}. Pass the right one: head=..."
            )
        self._verified = True

    def features(self) -> Tensor:
        """Return the head's input in the last pass, (N, D)."""
        assert self._held is not None
        return self._held[0]

    def release(self) -> None:
        """Drop the features."""
        self._held = None


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)
