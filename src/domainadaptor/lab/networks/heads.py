"""The last layer of a classifier: finding it, removing its bias, and capturing its input."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from domainadaptor.errors import UnsupportedNetwork


def find_head(network: nn.Module, classes: int) -> str:
    """Return the name of the layer that makes the logits: the last linear layer or 1x1 convolution of that width.

    Raises:
        UnsupportedNetwork: None has as many outputs as there are classes.
    """
    names = [name for name, module in network.named_modules() if _outputs(module) == classes]
    if not names:
        raise UnsupportedNetwork(
            f"{type(network).__name__} has no linear layer or 1x1 convolution with {classes} outputs, so its head "
            "cannot be found; use a network whose logits come from one such layer"
        )
    return str(names[-1])


def head_width(network: nn.Module, head: str) -> int:
    """Return the number of input features of the head."""
    layer = network.get_submodule(head)
    return int(layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels)  # type: ignore[arg-type]


def remove_head_bias(network: nn.Module, classes: int) -> None:
    """Remove the bias of the head, as in the paper's program."""
    network.get_submodule(find_head(network, classes)).register_parameter("bias", None)


class HeadFeatures:
    """The input of the head in the last pass."""

    def __init__(self) -> None:
        self.value: Tensor | None = None

    def __call__(self) -> Tensor:
        """Return the features, (N, D); maps are averaged over their pixels.

        Raises:
            UnsupportedNetwork: The network's forward does not call its head.
        """
        if self.value is None:
            raise UnsupportedNetwork("the network's forward did not call its head, so there are no features")
        return self.value.mean((2, 3)) if self.value.ndim == 4 else self.value


@contextmanager
def features_of(network: nn.Module, head: str) -> Iterator[HeadFeatures]:
    """Capture the input of the head."""
    features = HeadFeatures()

    def keep(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        features.value = inputs[0]

    handle = network.get_submodule(head).register_forward_pre_hook(keep)
    try:
        yield features
    finally:
        handle.remove()


def _outputs(module: nn.Module) -> int | None:
    if isinstance(module, nn.Linear):
        return module.out_features
    if isinstance(module, nn.Conv2d) and module.kernel_size == (1, 1) and module.groups == 1:
        return module.out_channels
    return None
