"""The last layer of a classifier: finding it, removing its bias, and capturing its input."""

from torch import Tensor, nn

from domainadaptor.errors import UnsupportedNetwork


def find_head(network: nn.Module, classes: int) -> str:
    """Return the name of the layer that makes the logits: the last linear layer or 1x1 convolution of that width."""
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


def logits_and_features(network: nn.Module, head: str, images: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits and the input of the head, (N, D); maps are averaged over their pixels."""
    seen: list[Tensor] = []
    handle = network.get_submodule(head).register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        logits = network(images)
    finally:
        handle.remove()
    if not seen:
        raise UnsupportedNetwork("the network's forward did not call its head, so there are no features")
    return logits, seen[-1].mean((2, 3)) if seen[-1].ndim == 4 else seen[-1]


def _outputs(module: nn.Module) -> int | None:
    if isinstance(module, nn.Linear):
        return module.out_features
    if isinstance(module, nn.Conv2d) and module.kernel_size == (1, 1) and module.groups == 1:
        return module.out_channels
    return None
