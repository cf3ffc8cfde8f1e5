"""EATA and ETA: entropy of reliable, non-redundant images; EATA stays near the source. Niu et al., ICML 2022."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import domainadaptor as da
from domainadaptor import method
from domainadaptor import option_types as t
from domainadaptor.adaptation.batch import fitted_batch, given_batches
from domainadaptor.adaptation.step import compute_gradients
from domainadaptor.methods.tent import descend

__all__ = ["eata", "eta"]

_FISHER_BATCH = 64
_KEEP = 0.9  # of the moving average of predictions


@method(
    paper="Niu et al., EATA",
    year=2022,
    kind="loss",
    forwards="1 (2 if it predicts after)",
    backwards="1",
    options=t.gradient_steps,
)
def eta(network: nn.Module, *, margin: t.EntropyMargin = 0.4, eps: t.CosineLimit = None, **steps: Any) -> da.Adaptor:
    """Tent on confident images unlike the recent ones."""
    return descend(network, ReliableEntropy(margin=margin, eps=eps), **steps)


@method(
    paper="Niu et al., EATA",
    year=2022,
    kind="loss",
    forwards="1 (2 if it predicts after)",
    backwards="1",
    needs=("source samples",),
    options=t.gradient_steps,
)
def eata(
    network: nn.Module,
    *,
    source_images: t.Images = None,
    fisher_weight: t.NonNegative = 2000.0,
    margin: t.EntropyMargin = 0.4,
    eps: t.CosineLimit = None,
    **steps: Any,
) -> da.Adaptor:
    """ETA, kept near the source model by Fisher information.

    Args:
        network: Any trained network with norm layers that have a scale or shift; batch norms use batch statistics.
        source_images: A few hundred to 2000 images like those of the training, without labels: a tensor, which is
            split into batches of 64, or an iterable of batches. They are released after the first batch.
        fisher_weight: Weight of the distance to the source, scaled by Fisher information: 2000 for ImageNet, 1 for
            CIFAR.
    """
    reliable = ReliableEntropy(margin=margin, eps=eps)
    return descend(network, NearSource(reliable, _batches(source_images), fisher_weight), **steps)


def cosine_limit(classes: int) -> float:
    """Return the power of the number of classes that is 0.4 for 10 and 0.05 for 1000; at most 1."""
    return min(1.0, 0.4 * math.pow(classes / 10, math.log(0.05 / 0.4) / math.log(100)))


class ReliableEntropy(da.Objective):
    """The weighted mean entropy of confident images that differ from the average prediction."""

    rows_only = True

    def __init__(self, *, margin: float, eps: float | None) -> None:
        self.margin, self.eps = margin, eps
        # Of the predictions kept. A reset clears it; in the authors' program it outlives resets.
        self._average = da.EmaPrediction(_KEEP, uniform=False)

    def _parts(self) -> Sequence[da.Stateful]:
        return (self._average,)

    def __call__(self, network: da.AdaptiveNetwork, images: Tensor, logits: Tensor) -> Tensor | None:
        """Return the weighted mean over the images kept; None if there are none."""
        classes = logits.shape[1]
        limit = self.margin * math.log(classes)
        h, p = da.entropy(logits), logits.detach().softmax(1)
        kept = h.detach() < limit
        if not self._average.empty:
            average = self._average.before(p).unsqueeze(0)
            eps = cosine_limit(classes) if self.eps is None else self.eps
            kept &= F.cosine_similarity(average, p, dim=1).abs() < eps
        if not bool(kept.any()):
            return None
        self._average.add(p[kept])
        weight = (limit - h.detach()).exp()
        return (weight * h)[kept].mean()


class NearSource(da.Objective):
    """An objective plus a penalty on the distance to the source model, weighted by Fisher information.

    Fisher information is measured at the first batch, once the network's output can be read. Loading other weights
    does not measure it again.
    """

    def __init__(self, inner: da.Objective, source_images: list[Tensor], weight: float) -> None:
        self.inner, self.weight = inner, weight
        self._source_images = source_images
        self._fisher: dict[str, Tensor] | None = None

    def _parts(self) -> Sequence[da.Stateful]:
        return (self.inner,)

    def __call__(self, network: da.AdaptiveNetwork, images: Tensor, logits: Tensor) -> Tensor | None:
        """Return the inner loss plus the penalty."""
        if self._fisher is None:
            self._fisher, self._source_images = self._measure(network.independent()), []
        loss = self.inner(network, images, logits)
        if loss is None:
            return None
        for name, p in network.learnable().items():
            if name in self._fisher:
                distance = (p - network.start(name)).square()
                loss = loss + self.weight * (self._fisher[name].to(p) * distance).sum()
        return loss

    def _measure(self, network: da.AdaptiveNetwork) -> dict[str, Tensor]:
        """Average the squared gradients of each batch's mean loss, with the model's own predictions as labels."""
        total: dict[str, Tensor] = {}
        for images in self._source_images:
            logits = da.in_loss_precision(network(fitted_batch(images, network.network)))
            learnable = network.learnable()
            compute_gradients(F.cross_entropy(logits, logits.detach().argmax(1)), list(learnable.values()))
            for name, p in learnable.items():
                if p.grad is not None:
                    total[name] = total.get(name, torch.zeros_like(p.grad)) + p.grad.square()
            network.reset()
        if not da.finite(*total.values()):
            raise da.BadBatch("The gradient on source_images is not finite. Were they preprocessed as in training?")
        return {name: value / len(self._source_images) for name, value in total.items()}


def _batches(images: Iterable[Any] | None) -> list[Tensor]:
    """Return batches of source images from a tensor or an iterable of batches, with or without labels."""
    wanted = (
        "eata needs source_images=, a few hundred images from the training domains: a tensor (N, C, H, W) or an "
        "iterable of such batches (on the command line --source-images DIR for predict, --source DOMAIN for evaluate); "
        "use 'eta' if there are none"
    )
    if images is None:
        raise da.BadOption(wanted)
    try:
        batches = list(given_batches(images, _FISHER_BATCH))
    except (TypeError, da.BadBatch):
        batches = []
    if not batches or any(batch.ndim < 2 for batch in batches):
        raise da.BadOption(f"{wanted}; got a {type(images).__name__} without such batches")
    return batches
