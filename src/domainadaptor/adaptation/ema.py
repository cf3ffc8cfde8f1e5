"""A teacher: a network that follows another as a moving average of its weights."""

import torch
from torch import nn

from domainadaptor.adaptation.adaptive_network import AdaptiveNetwork


def everything(network: AdaptiveNetwork) -> dict[str, nn.Parameter]:
    """Every weight, scale and shift that learns, by name; the same for every copy that was used alike."""
    norms = {f"{name}[{at}]": p for name, norm in network.norms.items() for at, p in enumerate(norm.learnable())}
    return norms | network.weights


@torch.no_grad()
def follow(teacher: AdaptiveNetwork, student: AdaptiveNetwork, share: float) -> None:
    """Moves every weight of the teacher toward the student's by a share of the way; statistics stay."""
    slow, fast = everything(teacher), everything(student)
    for name in slow.keys() & fast.keys():  # a layer may be used more than once by one batch and not by another
        slow[name].copy_((1 - share) * slow[name] + share * fast[name])
