"""RoTTA: robust statistics, a class-balanced bank and a mean teacher. Yuan et al., CVPR 2023."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn

import domainadaptor as da
from domainadaptor import method
from domainadaptor import option_types as t
from domainadaptor.augmentation.cotta import cotta_view
from domainadaptor.augmentation.pixels import Pixels
from domainadaptor.methods._bank import BankAdaptor

__all__ = ["Rotta"]


class Item(NamedTuple):
    """A stored image."""

    image: Tensor  # (C, H, W)
    label: int
    uncertainty: float  # entropy divided by its maximum, log K
    born: int  # number of images offered before it


class BalancedBank(da.Stateful):
    """A class-balanced bank of images; old and uncertain ones are replaced first (CSTU)."""

    kept = ("items", "seen")
    items: tuple[Item, ...] = ()
    seen: int = 0  # number of images offered

    def __init__(self, capacity: int, *, timeliness: float, uncertainty: float) -> None:
        self.capacity = capacity
        self._weights = timeliness, uncertainty

    @property
    def images(self) -> list[Tensor]:
        """The stored images."""
        return [item.image for item in self.items]

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


@method(
    paper="Yuan et al., RoTTA",
    year=2023,
    kind="teacher",
    forwards="1, and 2 for every 64 images",
    backwards="1 for every 64 images",
    options=BankAdaptor,
)
@final
class Rotta(BankAdaptor):
    """Robust statistics; a student learns from an image bank.

    The statistics follow the stream wherever it goes: hostile batches can cost tens of points, also with guard=True.

    Args:
        network: Any trained network with batch normalization.
        nu: Weight of the student in the teacher at each update.
        timeliness: Weight of an image's age in the choice of what leaves the bank.
        uncertainty: Weight of an image's entropy in the choice of what leaves the bank.
        predict: "before" the batch is used as published, or "after" it with one more pass of the teacher.
        seed: Random seed of the views.
    """

    _bank: BalancedBank

    def __init__(
        self,
        network: nn.Module,
        *,
        capacity: t.Capacity = 64,
        share: t.BankShare = 0.05,
        nu: t.Share = 0.001,
        timeliness: t.NonNegative = 1.0,
        uncertainty: t.NonNegative = 1.0,
        mean: t.Mean = t.IMAGENET_MEAN,
        std: t.Std = t.IMAGENET_STD,
        seed: t.Seed = 0,
        **steps: Any,
    ) -> None:
        self._nu = nu
        self._pixels, self._random = Pixels(mean, std), da.SeededGenerator(seed)
        bank = BalancedBank(capacity, timeliness=timeliness, uncertainty=uncertainty)
        super().__init__(network, bank, share, **steps)

    def _build(self) -> da.AdaptiveNetwork:
        build = partial(self._adaptive, norm=partial(da.MixedNorm, alpha=1.0, running=True), learns="norms")
        self._student = build()
        return build()

    def _parts(self) -> Sequence[da.Stateful]:
        return self._student, self._bank, self._optimizer, self._random

    def _facts(self, logits: Tensor) -> list[tuple[int, float, int]]:
        wide, classes = da.in_loss_precision(logits), logits.shape[1]
        uncertainties = (da.entropy(wide) / math.log(classes)).tolist()
        return [(*fact, classes) for fact in zip(wide.argmax(1).tolist(), uncertainties, strict=True)]

    def _bank_loss(self, like: Tensor) -> Tensor:
        """Return the distance of the student's predictions for views from the teacher's."""
        items = sorted(self._bank.items, key=lambda item: (item.label, item.born))
        images = torch.stack([item.image for item in items]).to(like)
        ages = torch.tensor([self._bank.age(item) for item in items], dtype=torch.float64, device="cpu")
        with torch.no_grad():
            target = da.in_loss_precision(self._main(images)).softmax(1)
        view = self._pixels.back(cotta_view(self._pixels.of(images), self._random.generator), images)
        logits = da.in_loss_precision(self._student(view))
        # New images have weight one half, older ones less.
        weight = (-ages).sigmoid().to(logits)
        return (weight * -(target * logits.log_softmax(1)).sum(1)).mean()

    def _update(self, like: Tensor) -> Tensor | str:
        taken = super()._update(like)
        if not isinstance(taken, str):
            da.update_ema(self._main, self._student, self._nu)
        return taken
