"""EATA and ETA: entropy of reliable, varied images only, near the source. Niu et al., ICML 2022."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from domainadaptor.adaptation.adaptor import Adaptation, Adaptor
from domainadaptor.adaptation.batch import checked_batch
from domainadaptor.adaptation.copying import independent_copy
from domainadaptor.adaptation.ema_prediction import AveragePrediction
from domainadaptor.adaptation.logits import finite, in_loss_precision
from domainadaptor.adaptation.losses import entropy
from domainadaptor.adaptation.objective import Forward, Objective
from domainadaptor.adaptation.optimizers import optimizer_called
from domainadaptor.adaptation.state import Part
from domainadaptor.adaptation.step import StepAdaptor, gradients_of
from domainadaptor.catalog import method
from domainadaptor.errors import BadBatch, BadOption
from domainadaptor.norms.batch_only import batch_only
from domainadaptor.option_types import (
    CosineLimit,
    EntropyMargin,
    Images,
    LearningRate,
    Momentum,
    NonNegative,
    Optimizer,
    Predict,
    ResetEvery,
    Steps,
)

__all__ = ["eata", "eta"]

SourceImages = Tensor | Iterable[Tensor | Sequence[Any]]

_FISHER_BATCH = 64
_KEEP = 0.9  # of the moving average of predictions


@method(paper="Niu et al., EATA", year=2022, kind="loss", forwards="1 (2 if it predicts after)", backwards="1")
def eta(
    network: nn.Module,
    *,
    margin: EntropyMargin = 0.4,
    eps: CosineLimit = None,
    lr: LearningRate = 2.5e-4,
    optimizer: Optimizer = "sgd",
    momentum: Momentum = 0.9,
    steps: Steps = 1,
    reset_every: ResetEvery = None,
    predict: Predict = "before",
) -> Adaptor:
    """Tent on confident images unlike the recent ones."""
    return StepAdaptor(
        network,
        norm=batch_only,
        objective=ReliableEntropy(margin=margin, eps=eps),
        optimizer=optimizer_called(optimizer, lr=lr, momentum=momentum),
        steps=steps,
        reset_every=reset_every,
        predict=predict,
        others=True,
    )


@method(
    paper="Niu et al., EATA",
    year=2022,
    kind="loss",
    forwards="1 (2 if it predicts after)",
    backwards="1",
    needs=("source samples",),
)
def eata(
    network: nn.Module,
    *,
    source_images: Images = None,
    fisher_weight: NonNegative = 2000.0,
    margin: EntropyMargin = 0.4,
    eps: CosineLimit = None,
    lr: LearningRate = 2.5e-4,
    optimizer: Optimizer = "sgd",
    momentum: Momentum = 0.9,
    steps: Steps = 1,
    reset_every: ResetEvery = None,
    predict: Predict = "before",
) -> Adaptor:
    """ETA, kept near the source model by Fisher information.

    Args:
        network: Any trained network with norm layers that have a scale or shift; batch norms use batch statistics.
        source_images: A few hundred to 2000 images like those of the training, without labels: a tensor, which is
            split into batches of 64, or an iterable of batches. They are released after the first batch.
        fisher_weight: Weight of the distance to the source, scaled by Fisher information: 2000 for ImageNet, 1 for
            CIFAR.
    """
    return _Eata(
        network,
        source_images=source_images,
        fisher_weight=fisher_weight,
        norm=batch_only,
        objective=ReliableEntropy(margin=margin, eps=eps),
        optimizer=optimizer_called(optimizer, lr=lr, momentum=momentum),
        steps=steps,
        reset_every=reset_every,
        predict=predict,
        others=True,
    )


def cosine_limit(classes: int) -> float:
    """The power of the number of classes that is 0.4 for 10 and 0.05 for 1000, at most 1."""
    return min(1.0, 0.4 * math.pow(classes / 10, math.log(0.05 / 0.4) / math.log(100)))


class ReliableEntropy(Objective):
    """The mean entropy of images that are sure and unlike the average prediction, weighed by how sure they are."""

    def __init__(self, *, margin: float, eps: float | None) -> None:
        self.margin = margin
        self.eps = eps
        # Of the predictions that were kept. The authors' program does not reset it, which their paper does not ask for.
        self._average = AveragePrediction(_KEEP, uniform=False)

    def _parts(self) -> Sequence[Part]:
        return (self._average,)

    def __call__(self, forward: Forward, images: Tensor, logits: Tensor) -> Tensor | None:
        """The weighted mean over the images kept; None if there are none."""
        classes = logits.shape[1]
        limit = self.margin * math.log(classes)
        h, p = entropy(logits), logits.detach().softmax(1)
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


class _Eata(StepAdaptor):
    """A StepAdaptor that is held near the source where Fisher information is high.

    The information is measured before the first batch, when the way to read the network's output is known. It stays
    when other weights are loaded: those want an adaptor of their own.
    """

    def __init__(
        self, network: nn.Module, *, source_images: SourceImages | None, fisher_weight: float, **options: Any
    ) -> None:
        self._fisher_weight = fisher_weight
        self._fisher: dict[str, Tensor] | None = None
        self._source_images = _batches(source_images)
        super().__init__(network, **options)

    def _learn(self, images: Tensor) -> Adaptation:
        if self._fisher is None:
            self._fisher = self._measure()
            self._source_images = []
        return super()._learn(images)

    def _measure(self) -> dict[str, Tensor]:
        """The squared gradients of each batch's mean loss with its own predictions as labels, averaged."""
        source, main = self.source, self._main
        weights = [p for p in source.parameters() if p.is_floating_point()]
        total: dict[str, Tensor] = {}
        try:
            # A copy, because a forward may write to what it holds.
            self.source = independent_copy(source).eval()
            self._main = self._build()
            for images in self._source_images:
                images = checked_batch(images.to(weights[0]) if weights else images, weights)
                for name, square in self._squares(images).items():
                    total[name] = total[name] + square if name in total else square
        finally:
            self.source, self._main = source, main
        return {name: value / len(self._source_images) for name, value in total.items()}

    def _squares(self, images: Tensor) -> dict[str, Tensor]:
        logits = in_loss_precision(self._first_pass(images, grad=True))
        learnable = self._main.named_learnable()
        gradients = gradients_of(F.cross_entropy(logits, logits.detach().argmax(1)), list(learnable.values()))
        found = {name: g.detach().square() for name, g in zip(learnable, gradients, strict=True) if g is not None}
        if not finite(*found.values()):
            raise BadBatch("source_images: their gradient is not finite; are they preprocessed as in training?")
        for p in learnable.values():
            p.grad = None
        return found

    def _loss(self, images: Tensor, logits: Tensor) -> Tensor | None:
        loss = super()._loss(images, logits)
        if loss is None or self._fisher is None:
            return loss
        for name, p in self._main.named_learnable().items():
            if name in self._fisher:
                far = (p - self._main.start(name)).square()
                loss = loss + self._fisher_weight * (self._fisher[name].to(p) * far).sum()
        return loss


def _batches(images: object) -> list[Tensor]:
    """Batches of source images, from one large batch or an iterable of batches, perhaps with labels."""
    wanted = (
        "eata needs source_images=, a few hundred images like those of the training: a tensor (N, C, H, W) or an "
        "iterable of such batches (on the command line --source-images DIR for predict, --source DOMAIN for evaluate); "
        "without any, use 'eta'"
    )
    if images is None:
        raise BadOption(wanted)
    if isinstance(images, Tensor):
        batches = list(images.split(_FISHER_BATCH)) if images.ndim > 1 and len(images) else []
    elif isinstance(images, Iterable):
        items = [item[0] if isinstance(item, Sequence) and not isinstance(item, str) else item for item in images]
        batches = [item for item in items if isinstance(item, Tensor) and item.ndim > 1 and len(item) > 0]
        batches = batches if len(batches) == len(items) else []
    else:
        batches = []
    if not batches:
        raise BadOption(f"{wanted}; got a {type(images).__name__} without such batches")
    return batches
