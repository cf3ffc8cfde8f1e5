"""MEMO: one image at a time, the mean prediction of its views made sure. Zhang et al., NeurIPS 2022."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Literal

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW

from domainadaptor.adaptation.adaptive_network import AdaptiveNetwork, listed
from domainadaptor.adaptation.adaptor import Adaptation, Adaptor
from domainadaptor.adaptation.descent import take_step
from domainadaptor.adaptation.learning import LearningAdaptor
from domainadaptor.adaptation.logits import finite, in_loss_precision
from domainadaptor.adaptation.state import Draws, KeptOptimizer, OptimizerFactory, Part
from domainadaptor.augmentation.augmix import augmix_views
from domainadaptor.augmentation.crops import random_views
from domainadaptor.augmentation.pixels import Pixels
from domainadaptor.catalog import method
from domainadaptor.errors import UnsupportedNetwork
from domainadaptor.norms.constant import ConstantNorm
from domainadaptor.option_types import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Count,
    LearningRate,
    Mean,
    NonNegative,
    Seed,
    Share,
    Std,
    Steps,
    Variance,
)
from domainadaptor.options import Option

__all__ = ["memo"]

Area = Annotated[float, Option(gt=0, le=1)]


class _Memo(LearningAdaptor):
    """Adapts to each image on its own, and forgets it before the next."""

    def __init__(
        self,
        network: nn.Module,
        *,
        alpha: float,
        variance: Variance,
        views: int,
        area: float,
        pixels: Pixels | None,
        optimizer: OptimizerFactory,
        steps: int,
        seed: int,
    ) -> None:
        super().__init__(network, reset_every=1)
        # The authors' program writes the statistics of the views to buffers, which no gradient passes.
        self._norm = partial(ConstantNorm, alpha=alpha, fold=False, variance=variance)
        self._views, self._area, self._pixels = views, area, pixels
        self._optimizer = KeptOptimizer(optimizer)
        self._draws = Draws(seed)
        self._steps = steps
        self._images = 0
        self._rebuild()

    def _build(self) -> AdaptiveNetwork:
        return AdaptiveNetwork(self.source, norm=self._norm, learns="all", others=True)

    def _parts(self) -> Sequence[Part]:
        return self._optimizer, self._draws

    def _learn(self, images: Tensor) -> Adaptation:
        self._images = len(images)
        results = [self._learn_one(image) for image in images.split(1)]
        before = torch.cat([result.before for result in results])
        alpha = results[-1].alpha
        failed = [at for at, result in enumerate(results) if result.fell_back]
        if len(failed) == len(results):
            why = str(results[0].note).partition(";")[0]
            return self._fall_back(images, before, alpha, why)
        note = results[-1].note
        if failed:
            why = str(results[failed[0]].note).partition(";")[0]
            note = f"{why}; the logits are the source network's own for images {listed([str(at) for at in failed])}"
        losses = [result.loss for result in results if result.loss is not None]
        loss = sum(losses) / len(losses) if losses else None
        return Adaptation(torch.cat([result.logits for result in results]), before, loss, alpha, note)

    def _learn_one(self, image: Tensor) -> Adaptation:
        # Every image gets the same draws, so that its answer does not depend on the batch that it is in.
        self._forget()
        before = self._first_pass(image, grad=False)
        alpha = self._main.alphas()
        if not finite(before):
            why = "the logits under mixed statistics are not finite"
            return self._fall_back(image, self._run_source(image), alpha, why)
        value = None
        for _ in range(self._steps):
            loss = self._marginal_entropy(in_loss_precision(self._pass(self._view(image))))
            why_not = take_step(loss, self._main.learnable(), self._optimizer)
            if why_not is not None:
                return self._fall_back(image, before, alpha, why_not)
            value = loss.item()
        with torch.no_grad():
            logits = self._pass(image)
        if not finite(logits):
            return self._fall_back(image, before, alpha, "the adapted logits are not finite (lr too large?)")
        return Adaptation(logits, before.detach(), value, alpha, self._main.single_note())

    def _view(self, image: Tensor) -> Tensor:
        if self._pixels is None:
            return random_views(image, self._views, self._draws.generator, (self._area, 1.0))
        views = augmix_views(self._pixels.of(image), self._views, self._draws.generator, self._area)
        return self._pixels.back(views, image)

    def _marginal_entropy(self, logits: Tensor) -> Tensor:
        """The entropy of the mean probability over the views."""
        mean = logits.log_softmax(1).logsumexp(0) - math.log(len(logits))
        return -(mean.exp() * mean).sum()

    def _plain_values(self) -> Mapping[str, Mapping[str, Tensor]]:
        if self._images > 1:
            raise UnsupportedNetwork(
                f"every one of the {self._images} images has a network of its own, and a plain one holds one; give "
                "adaptor.adapted one image, or use adaptor(images)"
            )
        return super()._plain_values()


@method(
    paper="Zhang et al., MEMO",
    year=2022,
    kind="self-supervised",
    forwards="2 + views for each image",
    backwards="1 for each image",
)
def memo(
    network: nn.Module,
    *,
    views: Count = 32,
    augmentation: Literal["augmix", "crops"] = "augmix",
    area: Area = 0.08,
    alpha: Share = 16 / 17,
    lr: LearningRate = 2.5e-4,
    optimizer: Literal["sgd", "adamw"] = "sgd",
    weight_decay: NonNegative = 0.0,
    steps: Steps = 1,
    variance: Variance = "unbiased",
    mean: Mean = IMAGENET_MEAN,
    std: Std = IMAGENET_STD,
    seed: Seed = 0,
) -> Adaptor:
    """Per image, minimize the entropy of the mean over views.

    Args:
        network: Any trained network with norm layers.
        views: Random views per image (published: 64 for ImageNet, 32 for CIFAR).
        augmentation: "augmix" as published, or "crops" with flips, which keep the colors.
        area: Smallest fraction of an image that a view is cropped from: 0.08 as for ImageNet; small images need more.
        alpha: Weight of the source statistics in batch norms; 16 / 17 counts them as 16 images.
        lr: Learning rate (0.005 for CIFAR).
        optimizer: "sgd" as published for ResNets, or "adamw" as for more robust networks (with lr=1e-5).
        weight_decay: Weight decay of either optimizer (0.01 with "adamw").
        steps: Gradient steps per image, each with new views.
        seed: Random seed of the views; the same image always gets the same ones.
    """
    pixels = Pixels(mean, std)
    return _Memo(
        network,
        alpha=float(alpha),
        variance=variance,
        views=int(views),
        area=float(area),
        pixels=pixels if augmentation == "augmix" else None,
        optimizer=partial(SGD if optimizer == "sgd" else AdamW, lr=lr, weight_decay=weight_decay),
        steps=int(steps),
        seed=int(seed),
    )
