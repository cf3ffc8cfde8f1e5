"""MEMO: minimize the entropy of the mean prediction over views, per image. Zhang et al., NeurIPS 2022."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal, final

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW

import domainadaptor as da
from domainadaptor import Option, method
from domainadaptor import option_types as t
from domainadaptor.augmentation.augmix import augmix_views
from domainadaptor.augmentation.pixels import Pixels
from domainadaptor.errors import listed

__all__ = ["Memo"]

Area = Annotated[float, Option(gt=0, le=1)]


@method(
    paper="Zhang et al., MEMO",
    year=2022,
    kind="self-supervised",
    forwards="2 + views for each image",
    backwards="1 for each image",
)
@final
class Memo(da.Adaptor):
    """Per image, minimize the entropy of the mean over views.

    Args:
        network: Any trained network with norm layers.
        views: Random views per image (published: 64 for ImageNet, 32 for CIFAR).
        area: Smallest fraction of an image that a view is cropped from: 0.08 as for ImageNet; small images need more.
        alpha: Weight of the source statistics in batch norms; 16 / 17 counts them as 16 images.
        lr: Learning rate (0.005 for CIFAR).
        optimizer: "sgd" as published for ResNets, or "adamw" as for more robust networks (with lr=1e-5).
        weight_decay: Weight decay of either optimizer (0.01 with "adamw").
        steps: Gradient steps per image, each with new views.
        seed: Random seed of the views; the same image always gets the same ones.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        views: t.Count = 32,
        area: Area = 0.08,
        alpha: t.Share = 16 / 17,
        lr: t.LearningRate = 2.5e-4,
        optimizer: Literal["sgd", "adamw"] = "sgd",
        weight_decay: t.NonNegative = 0.0,
        steps: t.Steps = 1,
        variance: t.Variance = "unbiased",
        mean: t.Mean = t.IMAGENET_MEAN,
        std: t.Std = t.IMAGENET_STD,
        seed: t.Seed = 0,
    ) -> None:
        super().__init__(network, reset_every=1)
        # Constant, because the authors' program writes the statistics of the views to buffers.
        self._norm = partial(da.MixedNorm, alpha=alpha, variance=variance, constant=True)
        self._views, self._area, self._pixels = views, area, Pixels(mean, std)
        make = partial(SGD if optimizer == "sgd" else AdamW, lr=lr, weight_decay=weight_decay)
        self._optimizer, self._random, self._steps = da.LazyOptimizer(make), da.SeededGenerator(seed), steps
        self._images = 0
        self._rebuild()

    def _build(self) -> da.AdaptiveNetwork:
        return self._adaptive(norm=self._norm, learns="all", others=True)

    def _parts(self) -> Sequence[da.Stateful]:
        return self._optimizer, self._random

    def _learn(self, images: Tensor) -> da.Adaptation:
        self._images = len(images)
        results = [self._learn_one(image) for image in images.split(1)]
        failed = [at for at, result in enumerate(results) if result.fell_back]
        note = results[0].note if len(failed) == len(results) else results[-1].note
        if 0 < len(failed) < len(results):
            why = str(results[failed[0]].note).partition(";")[0]
            note = f"{why}; the logits are the source model's for images {listed(failed)}"
        losses = [result.loss_tensor for result in results if result.loss_tensor is not None]
        return da.Adaptation(
            torch.cat([result.logits for result in results]),
            torch.cat([result.before for result in results]),
            torch.stack(losses).mean() if losses else None,
            results[-1].alpha_tensors,
            note,
            fell_back=len(failed) == len(results),
        )

    def _learn_one(self, image: Tensor) -> da.Adaptation:
        # Every image gets the same random numbers, so that its prediction does not depend on the rest of the batch.
        self._reset_parts()
        with torch.no_grad():
            before = self._main(image)
        alpha, note, loss = self._main.alphas(), self._main.single_note(), None
        parameters = list(self._main.learnable().values())
        for _ in range(self._steps):
            loss = self._marginal_entropy(da.in_loss_precision(self._main(self._view(image))))
            if (why := da.gradient_step(loss, parameters, self._optimizer, before)) is not None:
                return self._fall_back(image, before if da.finite(before) else None, why)
        with torch.no_grad():
            logits = self._main(image)
        result = da.Adaptation(logits, before.detach(), None if loss is None else loss.detach(), alpha, note)
        return self._judged(image, result, guarded=False)

    def _view(self, image: Tensor) -> Tensor:
        views = augmix_views(self._pixels.of(image), self._views, self._random.generator, self._area)
        return self._pixels.back(views, image)

    def _marginal_entropy(self, logits: Tensor) -> Tensor:
        """Return the entropy of the mean prediction over the views."""
        mean = logits.log_softmax(1).logsumexp(0) - math.log(len(logits))
        return -(mean.exp() * mean).sum()

    def _check_plain(self) -> None:
        if self._images > 1:
            raise da.UnsupportedNetwork(
                f"Each of the {self._images} images has its own adapted network. Pass one image, or use "
                "adaptor(images)."
            )
