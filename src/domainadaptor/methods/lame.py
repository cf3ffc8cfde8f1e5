"""LAME: predictions of a batch adjusted to agree between similar images. Boudiaf et al., CVPR 2022."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from domainadaptor import Adaptor, Predictor, StepAdaptor, batch_only, method
from domainadaptor import option_types as t

__all__ = ["lame"]

_FLOOR = 1e-10  # added to probabilities before the logarithm, as in the authors' program


class Laplacian(Predictor):
    """Pull the predictions of similar images together, iterating to a fixed point near the network's predictions."""

    def __init__(
        self, affinity: str, neighbors: int, symmetric: bool, weight: float, steps: int, tolerance: float
    ) -> None:
        self.affinity, self.neighbors, self.symmetric = affinity, neighbors, symmetric
        self.weight, self.steps, self.tolerance = weight, steps, tolerance

    def __call__(self, logits: Tensor, features: Tensor | None, head: nn.Linear | None) -> Tensor:
        """Return log-probabilities of the classes, (N, K)."""
        assert features is not None
        log_p = (logits.softmax(1) + _FLOOR).log()
        kernel = self._kernel(F.normalize(features, dim=1))
        result = log_p.log_softmax(1)
        previous = float("inf")
        for step in range(self.steps):
            result = (log_p + self.weight * kernel @ result.exp()).log_softmax(1)
            energy = self._energy(result, log_p, kernel)
            if step > 1 and abs(energy - previous) <= self.tolerance * abs(previous):
                break
            previous = energy
        return result

    def _energy(self, result: Tensor, log_p: Tensor, kernel: Tensor) -> float:
        y = result.exp()
        return float((y * (result - log_p - self.weight * kernel @ y)).sum())

    def _kernel(self, features: Tensor) -> Tensor:
        """Return the affinities between images, (N, N)."""
        if self.affinity == "linear":
            kernel = features @ features.T
        else:
            # A matrix product would lose small distances.
            distances = torch.cdist(features, features, compute_mode="donot_use_mm_for_euclid_dist")
            kernel = self._rbf(distances) if self.affinity == "rbf" else self._nearest(distances)
        return (kernel + kernel.T) / 2 if self.symmetric else kernel

    def _rbf(self, distances: Tensor) -> Tensor:
        nearest = distances.topk(min(self.neighbors, len(distances)), largest=False).values[:, -1]
        width = nearest.mean().clamp(min=1e-6)  # 0 for identical images
        return (-distances.square() / (2 * width.square())).exp()

    def _nearest(self, distances: Tensor) -> Tensor:
        """Connect the nearest others. The authors drop the first neighbor, which need not be the image itself."""
        others = distances + torch.diag(distances.new_full((len(distances),), float("inf")))
        chosen = others.topk(min(self.neighbors, len(distances) - 1), largest=False).indices
        return torch.zeros_like(distances).scatter_(1, chosen, 1.0)


@method(
    paper="Boudiaf et al., LAME",
    year=2022,
    kind="prediction",
    forwards="1",
    needs=("features and a linear head",),
)
def lame(
    network: nn.Module,
    *,
    affinity: Literal["knn", "rbf", "linear"] = "rbf",
    neighbors: t.Count = 5,
    symmetric: bool = False,
    weight: t.NonNegative = 1.0,
    steps: t.Count = 100,
    tolerance: t.NonNegative = 1e-8,
    statistics: t.Statistics = "source",
    head: t.Head = None,
) -> Adaptor:
    """Make similar images agree, for labels in runs.

    The logits are log-probabilities; the weights stay as they are. With the authors' default, "rbf", it is meant for
    streams whose labels come in runs, and may give all images of a shuffled batch one answer.

    Args:
        network: Any trained network that ends in a linear layer.
        affinity: "rbf" as in the authors' program; "knn", with symmetric=True, for shuffled images, as in
            DomainAdaptor's program; or "linear".
        neighbors: Neighbors that "knn" connects; for "rbf", the width is the mean distance to this neighbor.
        symmetric: Average the affinity over both directions.
        weight: Weight of the neighbors relative to the network's own prediction.
        steps: Maximum number of iterations.
        tolerance: Relative change of the energy at which iteration stops.
    """
    adaptor = StepAdaptor(
        network,
        norm=None if statistics == "source" else batch_only,
        predictor=Laplacian(affinity, neighbors, symmetric, weight, steps, tolerance),
        head=head,
    )
    if affinity != "knn":
        adaptor.watch.advice = (
            f' LAME with affinity="{affinity}" is meant for streams whose labels come in runs. For shuffled images '
            'pass affinity="knn" and symmetric=True.'
        )
    return adaptor
