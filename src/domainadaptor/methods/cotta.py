"""CoTTA: a student learns from a moving-average teacher on augmented views. Wang et al., CVPR 2022."""

from collections.abc import Sequence
from functools import partial
from typing import Literal, final

import torch
from torch import Tensor, nn

import domainadaptor as da
from domainadaptor import method
from domainadaptor import option_types as t
from domainadaptor.augmentation.cotta import cotta_view
from domainadaptor.augmentation.pixels import Pixels

__all__ = ["Cotta"]


@method(paper="Wang et al., CoTTA", year=2022, kind="teacher", forwards="3 + views", backwards="1")
@final
class Cotta(da.Adaptor):
    """Train a student on an averaged teacher's many views.

    Args:
        network: Any trained network with norm layers; batch norms use batch statistics.
        views: Random views that the teacher averages where the source model is not confident.
        ap: The source model is confident if its mean confidence is at least this: 0.92 for CIFAR-10, 0.72 for
            CIFAR-100, 0.1 for ImageNet.
        rst: Probability that a single weight of the student is restored to the source after a step.
        ema: Decay of the teacher's moving average.
        consistency: Loss toward the teacher: "ce" as for CIFAR, or "symmetric" as for ImageNet.
        optimizer: "adam" as for CIFAR, or "sgd" as for ImageNet (with lr=0.01).
        predict: "before" the step as published, views included, or "after" it with one more pass of the teacher.
        seed: Random seed of the views and of the restored weights.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        views: t.Count = 32,
        ap: t.Share = 0.92,
        rst: t.Share = 0.01,
        ema: t.Share = 0.999,
        consistency: Literal["ce", "symmetric"] = "ce",
        lr: t.LearningRate = 1e-3,
        optimizer: t.Optimizer = "adam",
        momentum: t.Momentum = 0.9,
        reset_every: t.ResetEvery = None,
        predict: t.Predict = "before",
        variance: t.Variance = "biased",
        mean: t.Mean = t.IMAGENET_MEAN,
        std: t.Std = t.IMAGENET_STD,
        seed: t.Seed = 0,
    ) -> None:
        super().__init__(network, reset_every=reset_every)
        self._views, self._ap, self._rst, self._ema = views, ap, rst, ema
        self._symmetric, self._predict_after = consistency == "symmetric", predict == "after"
        self._norm = partial(da.batch_only, variance=variance)
        self._optimizer = da.LazyOptimizer(da.make_optimizer(optimizer, lr=lr, momentum=momentum))
        self._pixels, self._random = Pixels(mean, std), da.SeededGenerator(seed)
        self._rebuild()

    def _build(self) -> da.AdaptiveNetwork:
        # The anchor, which never learns, decides when the teacher averages over views.
        build = partial(self._adaptive, norm=self._norm, others=True)
        self._student, self._anchor = build(learns="all"), build(learns="nothing")
        return build(learns="all")

    def _parts(self) -> Sequence[da.Stateful]:
        return self._student, self._anchor, self._optimizer, self._random

    def _learn(self, images: Tensor) -> da.Adaptation:
        with torch.no_grad():
            before = self._main(images)
        alpha, note = self._main.alphas(), self._main.single_note()
        logits = self._average_over_views(images, before)
        loss = self._consistency(da.in_loss_precision(self._student(images)), da.in_loss_precision(logits))
        parameters = list(self._student.learnable().values())
        if (why := da.gradient_step(loss, parameters, self._optimizer, before)) is not None:
            return self._fall_back(images, before if da.finite(before) else None, why)
        da.update_ema(self._main, self._student, 1 - self._ema)
        self._restore_some()
        if self._predict_after:
            with torch.no_grad():
                logits = self._main(images)
        return da.Adaptation(logits.detach(), before.detach(), loss.detach(), alpha, note)

    def _average_over_views(self, images: Tensor, plain: Tensor) -> Tensor:
        """Return the teacher's logits, averaged over views if the anchor is not confident."""
        with torch.no_grad():
            anchor = da.in_loss_precision(self._anchor(images))
        if float(anchor.softmax(1).amax(1).mean()) >= self._ap:
            return plain
        pixels = self._pixels.of(images)
        total = torch.zeros_like(da.in_loss_precision(plain))
        with torch.no_grad():
            for _ in range(self._views):
                view = self._pixels.back(cotta_view(pixels, self._random.generator), images)
                total += da.in_loss_precision(self._main(view))
        return (total / self._views).to(plain.dtype)

    def _consistency(self, student: Tensor, teacher: Tensor) -> Tensor:
        toward = -(teacher.softmax(1) * student.log_softmax(1)).sum(1).mean()
        if not self._symmetric:
            return toward
        return 0.5 * toward - 0.5 * (student.softmax(1) * teacher.log_softmax(1)).sum(1).mean()

    @torch.no_grad()
    def _restore_some(self) -> None:
        """Restore each single weight of the student to the source model's with a small probability."""
        for name, p in self._student.learnable().items():
            drawn = torch.rand(p.shape, generator=self._random.generator, dtype=torch.float32, device="cpu")
            p.copy_(torch.where((drawn < self._rst).to(p.device), self._student.start(name), p))
