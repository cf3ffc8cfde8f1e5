"""LAME: the predictions of a batch agree with those of their neighbours. Boudiaf et al., CVPR 2022."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from domainadaptor.adaptation.adaptor import Adaptor
from domainadaptor.adaptation.predictor import Predictor
from domainadaptor.adaptation.step import StepAdaptor
from domainadaptor.method_card import about
from domainadaptor.norms.batch_only import batch_only
from domainadaptor.options import check_choice, check_count, check_flag, check_number

__all__ = ["lame"]

_AFFINITIES = ("knn", "rbf", "linear")
_FLOOR = 1e-10  # the authors add it to probabilities before their logarithm


class Laplacian(Predictor):
    """Assignments that stay near the network's and are pulled to those of similar images, to a fixed point."""

    def __init__(
        self, affinity: str, neighbors: int, symmetric: bool, weight: float, steps: int, tolerance: float
    ) -> None:
        self.affinity = affinity
        self.neighbors = neighbors
        self.symmetric = symmetric
        self.weight = weight
        self.steps = steps
        self.tolerance = tolerance

    def __call__(self, logits: Tensor, features: Tensor, head: nn.Linear) -> Tensor:
        """Log-probabilities of the classes, (N, K)."""
        likely = (logits.softmax(1) + _FLOOR).log()
        kernel = self._kernel(F.normalize(features, dim=1))
        answer = likely.log_softmax(1)
        held = float("inf")
        for step in range(self.steps):
            answer = (likely + self.weight * kernel @ answer.exp()).log_softmax(1)
            energy = self._energy(answer, likely, kernel)
            if step > 1 and abs(energy - held) <= self.tolerance * abs(held):
                break
            held = energy
        return answer

    def _energy(self, answer: Tensor, likely: Tensor, kernel: Tensor) -> float:
        y = answer.exp()
        return float((y * (answer - likely - self.weight * kernel @ y)).sum())

    def _kernel(self, features: Tensor) -> Tensor:
        """How similar each image is to each other, (N, N)."""
        if self.affinity == "linear":
            kernel = features @ features.T
        else:
            # Not by the product of matrices, which loses the small distances that count.
            distances = torch.cdist(features, features, compute_mode="donot_use_mm_for_euclid_dist")
            kernel = self._rbf(distances) if self.affinity == "rbf" else self._nearest(distances)
        return (kernel + kernel.T) / 2 if self.symmetric else kernel

    def _rbf(self, distances: Tensor) -> Tensor:
        nearest = distances.topk(min(self.neighbors, len(distances)), largest=False).values[:, -1]
        width = nearest.mean().clamp(min=1e-6)  # identical images have none
        return (-distances.square() / (2 * width.square())).exp()

    def _nearest(self, distances: Tensor) -> Tensor:
        """Ones at the nearest others. The authors drop the first of the nearest, which need not be the image itself."""
        others = distances + torch.diag(distances.new_full((len(distances),), float("inf")))
        chosen = others.topk(min(self.neighbors, len(distances) - 1), largest=False).indices
        return torch.zeros_like(distances).scatter_(1, chosen, 1.0)


@about("Boudiaf et al., LAME", 2022, "prediction", forwards="1", needs=("features and a linear head",))
def lame(
    network: nn.Module,
    *,
    affinity: str = "rbf",
    neighbors: int = 5,
    symmetric: bool = False,
    weight: float = 1.0,
    steps: int = 100,
    tolerance: float = 1e-8,
    statistics: str = "source",
    head: str | None = None,
) -> Adaptor:
    """Predictions of a batch corrected so that similar images agree; the network stays as it is.

    The logits are logarithms of probabilities. It helps where neighbours in a batch share a class, and harms where a
    batch holds few images of many classes.

    Args:
        network: Any trained network that ends in a linear layer.
        affinity: "rbf" as its authors' program, "knn" (with symmetric=True as in DomainAdaptor's), or "linear".
        neighbors: How many neighbours "knn" joins; for "rbf", the width is the mean distance to this one, self first.
        symmetric: Whether two images are as similar as the mean of both directions.
        weight: Of the neighbours, against the network's own prediction.
        steps: How many iterations at most.
        tolerance: The relative change of the energy at which it stops.
        statistics: "source", or "batch" for batch statistics in every norm layer.
        head: The name of the linear layer that makes the logits; None: the last one.
    """
    check_choice("affinity", affinity, _AFFINITIES)
    check_count("neighbors", neighbors, low=1)
    check_flag("symmetric", symmetric)
    check_number("weight", weight, low=0)
    check_count("steps", steps, low=1)
    check_number("tolerance", tolerance, low=0)
    check_choice("statistics", statistics, ("source", "batch"))
    return StepAdaptor(
        network,
        norm=None if statistics == "source" else batch_only,
        predictor=Laplacian(affinity, int(neighbors), symmetric, float(weight), int(steps), float(tolerance)),
        head=head,
    )
