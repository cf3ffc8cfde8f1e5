"""A differentiable step of gradient descent, with torch.func."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

from domainadaptor.lab.networks.statistics import frozen_statistics

Parameters = Mapping[str, Tensor]


def inner_step(
    parameters: Parameters, loss: Callable[[Parameters], Tensor], lr: float
) -> tuple[dict[str, Tensor], Tensor]:
    """Return the parameters after one step, as a differentiable function, and the loss before it."""
    gradients, value = torch.func.grad_and_value(loss)(dict(parameters))
    return {name: p - lr * gradients[name] for name, p in parameters.items()}, value


def functional_logits(network: nn.Module, parameters: Parameters, images: Tensor) -> Tensor:
    """Return the logits with some parameters replaced; running statistics are unchanged."""
    with frozen_statistics(network):
        logits: Tensor = functional_call(network, dict(parameters), (images,))
    return logits
