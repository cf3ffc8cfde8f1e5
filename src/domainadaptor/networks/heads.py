"""The last linear layer of a classifier: found, replaced, and read from."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from domainadaptor.errors import UnsupportedNetwork


def find_head(network: nn.Module, classes: int) -> str:
    """The name of the linear layer that makes the logits.

    Raises:
        UnsupportedNetwork: None has as many outputs as there are classes.
    """
    names = [name for name, m in network.named_modules() if isinstance(m, nn.Linear) and m.out_features == classes]
    if not names:
        raise UnsupportedNetwork(
            f"{type(network).__name__} has no linear layer with {classes} outputs, so its head cannot be found"
        )
    return str(names[-1])


def remove_head_bias(network: nn.Module, classes: int) -> None:
    """Makes the head a linear map without bias, as in the paper's program."""
    network.get_submodule(find_head(network, classes)).register_parameter("bias", None)


class Features:
    """What the head was given in the last pass."""

    def __init__(self) -> None:
        self.value: Tensor | None = None

    def __call__(self) -> Tensor:
        """The features, (N, D).

        Raises:
            UnsupportedNetwork: The network's forward does not call its head.
        """
        if self.value is None:
            raise UnsupportedNetwork("the network's forward did not call its head, so there are no features")
        return self.value


@contextmanager
def features_of(network: nn.Module, head: str) -> Iterator[Features]:
    """Keeps what the head is given, while the context lasts."""
    features = Features()

    def keep(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        features.value = inputs[0]

    handle = network.get_submodule(head).register_forward_pre_hook(keep)
    try:
        yield features
    finally:
        handle.remove()
