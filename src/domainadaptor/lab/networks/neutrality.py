"""Whether wrapping a network is neutral: as long as nothing adapts, it must predict what the source model predicts."""

import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from domainadaptor import adapt
from domainadaptor.errors import UnsupportedNetwork


class NeutralityReport(NamedTuple):
    """How the predictions of a wrapped network differ from the source model's on one batch."""

    same_bits: bool  # without a step, in the network's own precision
    folded_error: float | None  # with folded norms, in float64, relative to the logits; None without batch norms

    @property
    def neutral(self) -> bool:
        """Return whether the wrapped network predicts what the source model predicts."""
        return self.same_bits and (self.folded_error is None or self.folded_error <= 1e-6)


def check_neutrality(network: nn.Module, images: Tensor) -> NeutralityReport:
    """Wrap a network so that nothing adapts, and compare the logits with the source model's.

    Batch norms are wrapped with alpha 1; other norm layers are wrapped for a step that is not taken. Folding is exact
    except for rounding, which a network with random weights can amplify; hence float64.
    """
    expected = adapt(network, "source")(images)
    try:
        unfolded = adapt(network, "adamixbn", alpha=1.0, fold=False)(images)
    except UnsupportedNetwork:
        return NeutralityReport(torch.equal(_without_step(network, images), expected), None)
    exact, images = copy.deepcopy(network).cpu().double(), images.cpu().double()
    source, folded = adapt(exact, "source")(images), adapt(exact, "adamixbn", alpha=1.0)(images)
    error = float((folded - source).norm() / source.norm().clamp(min=1e-300))
    return NeutralityReport(torch.equal(unfolded, expected), error)


def _without_step(network: nn.Module, images: Tensor) -> Tensor:
    try:
        return adapt(network, "tent").adapt(images).before
    except UnsupportedNetwork:  # no norm layer can be replaced, so none is
        return adapt(network, "source").adapt(images).before


def relative_change(logits: Tensor, source: Tensor) -> float:
    """Return the largest change of a logit, relative to the largest logit of the source model."""
    return float((logits - source).abs().max() / source.abs().max().clamp(min=1e-12))


def randomize_norms(network: nn.Module, seed: int) -> None:
    """Draw scale, shift and statistics of batch norms, so that the check of a random network can fail."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in network.modules():
            tensors = {**module._parameters, **module._buffers}
            if tensors.get("running_mean") is None:
                continue
            for name, low, draw, scale in (
                ("running_mean", 0.0, torch.randn, 0.3),
                ("running_var", 0.5, torch.rand, 1.0),
                ("weight", 0.75, torch.rand, 1.0),
                ("bias", 0.0, torch.randn, 0.2),
            ):
                if (tensor := tensors.get(name)) is not None:
                    tensor.copy_(low + scale * draw(tensor.shape, generator=generator))
