"""Whether wrapping a network is neutral: as long as nothing adapts, it must predict what the source model predicts."""

import copy

from torch import Tensor, nn

from domainadaptor import adapt
from domainadaptor.errors import UnsupportedNetwork

TOLERANCE = 1e-6  # of rounding


def neutrality_error(network: nn.Module, images: Tensor) -> float:
    """Wrap a network so that nothing adapts; return how far its logits are from the source model's, relative to them.

    Batch norms are wrapped with alpha 1; other norm layers are wrapped for a step that is not taken. Folding is exact
    except for rounding, which a network with random weights can amplify; hence float64.
    """
    exact, images = copy.deepcopy(network).cpu().double(), images.cpu().double()
    source = adapt(exact, "source")(images)
    try:
        wrapped = adapt(exact, "adamixbn", alpha=1.0)(images)
    except UnsupportedNetwork:
        wrapped = _before_step(exact, images)
    return float((wrapped - source).norm() / source.norm().clamp(min=1e-300))


def _before_step(network: nn.Module, images: Tensor) -> Tensor:
    try:
        return adapt(network, "tent").adapt(images).before
    except UnsupportedNetwork:  # no norm layer can be replaced, so none is
        return adapt(network, "source").adapt(images).before
