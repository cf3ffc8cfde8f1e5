"""ROID: certainty and diversity weights, weight ensembling, prior correction. Marsden et al., WACV 2024."""

from collections.abc import Sequence
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import domainadaptor as da
from domainadaptor import Option, method
from domainadaptor import option_types as t
from domainadaptor.methods.tent import descend

__all__ = ["roid"]

Clip = Annotated[float, Option(gt=0, le=1)]

_KEEP = 0.9  # of the moving average of predictions


@method(
    paper="Marsden et al., ROID",
    year=2024,
    kind="loss",
    forwards="1 + a part of the batch (2 + if it predicts after)",
    backwards="1",
    options=t.gradient_steps,
)
def roid(
    network: nn.Module,
    *,
    temperature: t.Positive = 1 / 3,
    clip: Clip = 0.99,
    consistency: bool = True,
    keep: t.Share = 0.99,
    prior: bool = True,
    seed: t.Seed = 0,
    **steps: Any,
) -> da.Adaptor:
    """Weighted likelihood ratio, kept near the source.

    Args:
        network: Any trained network with norm layers that have a scale or shift; batch norms use batch statistics.
        temperature: An image weighs exp(diversity * certainty / temperature), both scaled to [0, 1] per batch.
        clip: Probabilities are clipped to this in the likelihood ratio, as in the authors' program; 1 clips none.
        consistency: Add a loss for agreement with a view of each image: a flip and a crop here, more in the authors'
            program.
        keep: Weight of the adapted weights after each step; the rest is the source model's.
        prior: Correct predictions by how often each class was predicted in the batch.
        optimizer: "sgd" as published for ImageNet, or "adam" as for CIFAR (with lr=0.001).
    """
    objective = _WeightedRatio(temperature=temperature, clip=clip, consistency=consistency, keep=keep, seed=seed)
    return descend(network, objective, predictor=PriorCorrection() if prior else None, **steps)


class _WeightedRatio(da.Objective):
    """The weighted soft likelihood ratio of diverse images, plus the disagreement with a view of each."""

    def __init__(self, *, temperature: float, clip: float, consistency: bool, keep: float, seed: int) -> None:
        self.temperature, self.clip, self.consistency, self.keep = temperature, clip, consistency, keep
        self._average = da.EmaPrediction(_KEEP, uniform=True)
        self._random = da.SeededGenerator(seed)

    def _parts(self) -> Sequence[da.Stateful]:
        return self._average, self._random

    def __call__(self, network: da.AdaptiveNetwork, images: Tensor, logits: Tensor) -> Tensor:
        """Return the weighted sum divided by the number of images."""
        weight, kept = self._weigh(logits.detach())
        loss = (weight * soft_likelihood_ratio(logits, self.clip))[kept].sum()
        if self.consistency:
            views = da.in_loss_precision(network(da.random_views(images[kept], 1, self._random.generator)))
            loss = loss + (weight[kept] * _disagreement(views, logits[kept])).sum()
        return loss / len(logits)

    @torch.no_grad()
    def after_step(self, network: da.AdaptiveNetwork, loss: Tensor) -> str | None:
        """Pull the weights back toward the source model."""
        for name, p in network.learnable().items():
            p.mul_(self.keep).add_(network.start(name), alpha=1 - self.keep)
        return None

    def _weigh(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weight of each image, and which are at least as diverse as the average."""
        p = logits.softmax(1)
        average = self._average.before(p)
        diversity = _scaled(1 - F.cosine_similarity(average.unsqueeze(0), p, dim=1))
        certainty = _scaled(-da.entropy(logits))
        self._average.add(p)
        return (diversity * certainty / self.temperature).exp(), ~(diversity < diversity.mean())


class PriorCorrection(da.Predictor):
    """Correct the logits by how often each class was predicted in the batch."""

    needs_features = False

    def __call__(self, logits: Tensor, features: Tensor | None, head: nn.Linear | None) -> Tensor:
        """Return the corrected logits."""
        return corrected(logits)


def soft_likelihood_ratio(logits: Tensor, clip: float) -> Tensor:
    """Return -sum(p * log(p / (1 - p))) with p clipped at `clip`, (N,)."""
    p = logits.softmax(1).clamp(max=clip)
    return -(p * (p / (1 - p).clamp(min=1e-8) + 1e-5).log()).sum(1)


def corrected(logits: Tensor) -> Tensor:
    """Return logits of the probabilities times the batch's smoothed prior, as in the paper.

    The authors' program multiplies logits instead, which makes frequent classes with negative logits less likely.
    """
    wide = da.in_loss_precision(logits.detach())
    prior = wide.softmax(1).mean(0)
    smooth = max(1 / wide.shape[0], 1 / wide.shape[1]) / prior.max()
    weight = ((prior + smooth) / (1 + smooth * wide.shape[1])).log()
    return (wide + weight - weight.max()).to(logits.dtype)


def _scaled(values: Tensor) -> Tensor:
    """Scale values to [0, 1] over the batch; equal values become 0, so that each image has weight 1."""
    low, high = values.aminmax()
    return (values - low) / (high - low) if bool(high > low) else torch.zeros_like(values)


def _disagreement(one: Tensor, other: Tensor) -> Tensor:
    """Return the symmetric cross entropy, (N,), with gradients through both predictions."""
    forth = (other.softmax(1) * one.log_softmax(1)).sum(1)
    back = (one.softmax(1) * other.log_softmax(1)).sum(1)
    return -(forth + back) / 2
