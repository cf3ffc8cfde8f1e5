"""A probe that wrapping a network is neutral: with alpha 1 and no step it must answer as before."""

import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from domainadaptor import OutputReader, adapt


class NeutralityReport(NamedTuple):
    """What wrapping did to a network's answers on one batch."""

    same_bits: bool  # unfolded, in the network's own precision
    folded_error: float  # in float64, relative to the size of the logits
    step_change: float  # the largest change of a logit by one step, relative to their size

    @property
    def neutral(self) -> bool:
        """Whether the network answers as before."""
        return self.same_bits and self.folded_error <= 1e-6


def check_neutrality(network: nn.Module, images: Tensor, output: OutputReader | None = None) -> NeutralityReport:
    """Wraps the network in three ways and compares the answers.

    Folding is exact but for rounding, and a network with random weights can make much of rounding; hence float64.
    """
    expected = adapt(network, "source", output=output)(images)
    unfolded = adapt(network, "adamixbn", alpha=1.0, fold=False, output=output)(images)
    stepped = adapt(network, "domainadaptor-t", output=output).adapt(images)
    change = float((stepped.logits - stepped.before).abs().max() / stepped.before.abs().max().clamp(min=1e-12))
    return NeutralityReport(torch.equal(unfolded, expected), _folded_error(network, images, output), change)


def _folded_error(network: nn.Module, images: Tensor, output: OutputReader | None) -> float:
    exact, images = copy.deepcopy(network).cpu().double(), images.cpu().double()
    expected = adapt(exact, "source", output=output)(images)
    folded = adapt(exact, "adamixbn", alpha=1.0, output=output)(images)
    return float((folded - expected).norm() / expected.norm().clamp(min=1e-300))


def randomize_norms(network: nn.Module, seed: int) -> None:
    """Draws norm scale, shift and statistics away from 1 and 0, so that a probe of a random network can fail."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in network.modules():
            tensors = {**module._parameters, **module._buffers}
            if (mean := tensors.get("running_mean")) is None:
                continue
            mean.copy_(0.3 * torch.randn(mean.shape, generator=generator))
            for name, low in (("running_var", 0.5), ("weight", 0.75)):
                if (tensor := tensors.get(name)) is not None:
                    tensor.copy_(low + torch.rand(tensor.shape, generator=generator))
            if (bias := tensors.get("bias")) is not None:
                bias.copy_(0.2 * torch.randn(bias.shape, generator=generator))
