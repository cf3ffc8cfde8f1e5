"""Features: what a network's last linear layer, its head, is given."""

import torch
from torch import Tensor, nn

from domainadaptor.errors import UnsupportedNetwork


def find_head(network: nn.Module, name: str | None = None) -> str:
    """The name of the head: the one given, or the last linear layer.

    Raises:
        UnsupportedNetwork: There is none.
    """
    linear = [found for found, module in network.named_modules() if isinstance(module, nn.Linear)]
    if name is not None:
        if name not in linear:
            raise UnsupportedNetwork(f"head={name!r} is no linear layer of the network; it has {linear or 'none'}")
        return name
    if not linear:
        raise UnsupportedNetwork(
            f"{type(network).__name__} has no linear layer, and this method works on the features that one is given; "
            "use a method that needs no features, as `domainadaptor methods` lists them"
        )
    return str(linear[-1])


class FeatureTap:
    """Keeps what a head is given and what it answers, for the time of one batch."""

    def __init__(self, network: nn.Module, name: str) -> None:
        self.name = name
        head = network.get_submodule(name)
        assert isinstance(head, nn.Linear)
        self.head = head
        self.head.register_forward_hook(self)
        self._held: tuple[Tensor, Tensor] | None = None
        self._verified = False

    def __call__(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        """The hook."""
        self._held = inputs[0], output

    def verify(self, logits: Tensor) -> None:
        """Check, on the first pass, that the logits are what the head returned.

        Raises:
            UnsupportedNetwork: They are not.
        """
        if not self._verified and (self._held is None or not _same(self._held[1], logits)):
            raise UnsupportedNetwork(
                f"The logits are not what the linear layer {self.name!r} returned. Name the right one: head=..."
            )
        self._verified = True

    def features(self) -> Tensor:
        """Return what the head was given in the last pass, (N, D)."""
        assert self._held is not None
        return self._held[0]

    def release(self) -> None:
        """Drop the features."""
        self._held = None


def _same(one: Tensor, other: Tensor) -> bool:
    """Return whether all values are equal, NaN to NaN."""
    return one.shape == other.shape and torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)
