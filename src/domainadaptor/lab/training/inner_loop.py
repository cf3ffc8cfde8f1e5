"""A step of gradient descent that can itself be differentiated, on torch.func."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

from domainadaptor.lab.networks.statistics import frozen_statistics

Parameters = Mapping[str, Tensor]


def inner_step(
    parameters: Parameters, loss: Callable[[Parameters], Tensor], lr: float
) -> tuple[dict[str, Tensor], Tensor]:
    """Parameters after one step down a loss, as a differentiable function of everything, and the loss before it."""
    gradients, value = torch.func.grad_and_value(loss)(dict(parameters))
    return {name: p - lr * gradients[name] for name, p in parameters.items()}, value


def functional_logits(network: nn.Module, parameters: Parameters, images: Tensor) -> Tensor:
    """The network's logits with some of its parameters replaced; its running statistics stay as they are."""
    with frozen_statistics(network):
        logits: Tensor = functional_call(network, dict(parameters), (images,))
    return logits
