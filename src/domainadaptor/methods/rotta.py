"""RoTTA: robust statistics, a class-balanced bank and a mean teacher. Yuan et al., CVPR 2023."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, final

import torch
from torch import Tensor, nn

import domainadaptor as da
from domainadaptor import method
from domainadaptor import option_types as t
from domainadaptor.adaptation.batch import check_same_size
from domainadaptor.augmentation.cotta import cotta_view
from domainadaptor.augmentation.pixels import Pixels

__all__ = ["rotta"]


class Item(NamedTuple):
    """A stored image."""

    image: Tensor  # (C, H, W)
    label: int
    uncertainty: float  # entropy divided by its maximum, log K
    born: int  # number of images offered before it


class BalancedBank(da.Stateful):
    """A class-balanced bank of images; old and uncertain ones are replaced first (CSTU).

    Args:
        capacity: Number of images to store.
        timeliness: The weight of age in an image's score.
        uncertainty: The weight of its entropy.
    """

    kept = ("items", "seen")
    items: tuple[Item, ...] = ()
    seen: int = 0  # number of images offered

    def __init__(self, capacity: int, *, timeliness: float, uncertainty: float) -> None:
        self.capacity = capacity
        self._weights = timeliness, uncertainty

    def score(self, item: Item) -> float:
        """Return the score of an image; higher ones are replaced first."""
        timeliness, uncertainty = self._weights
        return timeliness / (1 + math.exp(-self.age(item))) + uncertainty * item.uncertainty

    def age(self, item: Item) -> float:
        """Return the number of images offered since, divided by the capacity."""
        return (self.seen - item.born) / self.capacity

    def add(self, image: Tensor, label: int, uncertainty: float, classes: int) -> None:
        """Offer an image. It is stored, replaces one with a higher score, or is dropped."""
        new = Item(image, label, uncertainty, self.seen)
        counts = [0] * classes
        for item in self.items:
            counts[item.label] += 1
        rivals: list[int] | None = None  # classes from which one image may be replaced
        if counts[label] >= self.capacity / classes:
            rivals = [label]
        elif len(self.items) >= self.capacity:
            rivals = [k for k in range(classes) if counts[k] == max(counts)]
        if rivals is None:
            self.items = (*self.items, new)
        else:
            worst = max((item for item in self.items if item.label in rivals), key=self._rank)
            if self.score(worst) > self.score(new):
                self.items = (*(item for item in self.items if item is not worst), new)
        self.seen += 1

    def _rank(self, item: Item) -> tuple[float, int, int]:
        # Of equal scores the last is replaced, in the order of classes, as in the authors' loop.
        return self.score(item), item.label, item.born


@final
class _Rotta(da.Adaptor):
    """The teacher predicts and fills a bank of images, on which the student takes regular steps."""

    def __init__(
        self,
        network: nn.Module,
        *,
        share: float,
        nu: float,
        every: int,
        bank: BalancedBank,
        optimizer: da.LazyOptimizer,
        pixels: Pixels,
        seed: int,
        reset_every: int | None,
        predict: str,
    ) -> None:
        super().__init__(network, reset_every=reset_every)
        self._share, self._nu, self._every, self._bank, self._pixels = share, nu, every, bank, pixels
        self._optimizer, self._random = optimizer, da.SeededGenerator(seed)
        self._predict_after = predict == "after"
        self._rebuild()

    def _build(self) -> da.AdaptiveNetwork:
        build = partial(self._adaptive, norm=partial(da.MixedNorm, alpha=1.0, running=True), learns="norms")
        self._student = build()
        return build()

    def _parts(self) -> Sequence[da.Stateful]:
        return self._student, self._bank, self._optimizer, self._random

    def _learn(self, images: Tensor) -> da.Adaptation:
        for item in self._bank.items[:1]:
            check_same_size(item.image, images)
        with torch.no_grad():
            logits = before = self._main(images)
        alpha, note = self._main.alphas(), self._main.single_note()
        if not da.finite(before):
            return self._fall_back(images, None, "the logits under running statistics are not finite")
        wide = da.in_loss_precision(before)
        uncertainties, labels = (da.entropy(wide) / math.log(wide.shape[1])).tolist(), wide.argmax(1).tolist()
        loss = None
        for image, label, uncertainty in zip(images, labels, uncertainties, strict=True):
            self._bank.add(image.detach().clone(), label, uncertainty, wide.shape[1])
            if self._bank.seen % self._every == 0:
                taken = self._update(images)
                if isinstance(taken, str):
                    return self._fall_back(images, before, taken)
                loss = taken
        if self._predict_after and loss is not None:
            with torch.no_grad():
                logits = self._main(images)
        return da.Adaptation(logits.detach(), before.detach(), loss, alpha, note)

    def _update(self, like: Tensor) -> Tensor | str:
        """Take a step of the student on the bank; return the loss, or why no step can be taken."""
        items = sorted(self._bank.items, key=lambda item: (item.label, item.born))
        images = torch.stack([item.image for item in items]).to(like)
        ages = torch.tensor([self._bank.age(item) for item in items], dtype=torch.float64, device="cpu")
        with self._following():
            with torch.no_grad():
                target = da.in_loss_precision(self._main(images)).softmax(1)
            view = self._pixels.back(cotta_view(self._pixels.of(images), self._random.generator), images)
            logits = da.in_loss_precision(self._student(view))
            # New images have weight one half, older ones less.
            weight = (-ages).sigmoid().to(logits)
            loss = (weight * -(target * logits.log_softmax(1)).sum(1)).mean()
            parameters = list(self._student.learnable().values())
            why = da.gradient_step(loss, parameters, self._optimizer) if parameters else None
            # Keep the statistics now; the following images of this batch are predicted already.
            self._main.end_batch()
            self._student.end_batch()
        if why is not None:
            return why
        da.update_ema(self._main, self._student, self._nu)
        return loss.detach()

    @contextmanager
    def _following(self) -> Iterator[None]:
        """Let the running statistics of both networks move toward the bank's."""
        norms = [n for part in (self._main, self._student) for n in part.norms.values() if isinstance(n, da.MixedNorm)]
        try:
            for norm in norms:
                norm.rule = 1.0 - self._share
            yield
        finally:
            for norm in norms:
                norm.rule = 1.0

    def _catch_up(self, images: Tensor) -> None:
        with torch.no_grad():
            self._main(images)


@method(
    paper="Yuan et al., RoTTA",
    year=2023,
    kind="teacher",
    forwards="1, and 2 for every 64 images",
    backwards="1 for every 64 images",
)
def rotta(
    network: nn.Module,
    *,
    capacity: t.Capacity = 64,
    update_every: t.UpdateEvery = 64,
    share: t.BankShare = 0.05,
    nu: t.Share = 0.001,
    timeliness: t.NonNegative = 1.0,
    uncertainty: t.NonNegative = 1.0,
    lr: t.LearningRate = 1e-3,
    optimizer: t.Optimizer = "adam",
    momentum: t.Momentum = 0.9,
    reset_every: t.ResetEvery = None,
    predict: t.Predict = "before",
    mean: t.Mean = t.IMAGENET_MEAN,
    std: t.Std = t.IMAGENET_STD,
    seed: t.Seed = 0,
) -> da.Adaptor:
    """Robust statistics; a student learns from an image bank.

    Args:
        network: Any trained network with batch normalization.
        nu: Weight of the student in the teacher at each update.
        timeliness: Weight of an image's age in the choice of what leaves the bank.
        uncertainty: Weight of an image's entropy in the choice of what leaves the bank.
        predict: "before" the batch is used as published, or "after" it with one more pass of the teacher.
        seed: Random seed of the views.
    """
    return _Rotta(
        network,
        share=share,
        nu=nu,
        every=update_every,
        bank=BalancedBank(capacity, timeliness=timeliness, uncertainty=uncertainty),
        optimizer=da.LazyOptimizer(da.make_optimizer(optimizer, lr=lr, momentum=momentum)),
        pixels=Pixels(mean, std),
        seed=seed,
        reset_every=reset_every,
        predict=predict,
    )
