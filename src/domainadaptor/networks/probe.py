"""A probe that wrapping a network is neutral: with alpha 1 and no step it must answer as before."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from domainadaptor import OutputReader, adapt


class Probe(NamedTuple):
    """What wrapping did to a network's answers on one batch."""

    same_bits: bool  # unfolded
    folded_error: float  # relative to the size of the logits
    step_change: float  # the largest change of a logit by one step, relative to their size

    @property
    def neutral(self) -> bool:
        """Whether the network answers as before."""
        return self.same_bits and self.folded_error <= 1e-5


def probe(network: nn.Module, images: Tensor, output: OutputReader | None = None) -> Probe:
    """Wraps the network in three ways and compares the answers."""
    expected = adapt(network, "source", output=output)(images)
    unfolded = adapt(network, "adamixbn", alpha=1.0, fold=False, output=output)(images)
    folded = adapt(network, "adamixbn", alpha=1.0, output=output)(images)
    stepped = adapt(network, "domainadaptor-t", output=output).adapt(images)
    size = float(expected.double().norm())
    error = float((folded.double() - expected.double()).norm()) / size if size else 0.0
    change = float((stepped.logits - stepped.before).abs().max() / stepped.before.abs().max().clamp(min=1e-12))
    return Probe(torch.equal(unfolded, expected), error, change)


def stir_norms(network: nn.Module, seed: int) -> None:
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
