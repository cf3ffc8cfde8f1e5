"""NOTE: instance-aware norms, and a memory that a stream of one class cannot fill. Gong et al., NeurIPS 2022."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from domainadaptor.adaptation.adaptive_network import AdaptiveNetwork
from domainadaptor.adaptation.adaptor import Adaptation, Adaptor
from domainadaptor.adaptation.batch import check_same_size
from domainadaptor.adaptation.descent import take_step
from domainadaptor.adaptation.learning import LearningAdaptor
from domainadaptor.adaptation.logits import finite, in_loss_precision
from domainadaptor.adaptation.losses import entropy
from domainadaptor.adaptation.optimizers import optimizer_called
from domainadaptor.adaptation.state import Draws, KeptOptimizer, OptimizerFactory, Part
from domainadaptor.catalog import method
from domainadaptor.errors import UnsupportedNetwork
from domainadaptor.norms.aware import AwareNorm
from domainadaptor.norms.instance_aware import InstanceAwareBatchNorm2d
from domainadaptor.option_types import (
    BankShare,
    Capacity,
    LearningRate,
    Momentum,
    Optimizer,
    Predict,
    ResetEvery,
    Seed,
    UpdateEvery,
)

__all__ = ["note"]


class _Held(NamedTuple):
    images: tuple[Tensor, ...]  # (C, H, W) each
    labels: tuple[int, ...]
    counts: tuple[tuple[int, int], ...]  # class -> how many of it were offered
    seen: int
    draws: Tensor


class ReservoirMemory(Part):
    """A memory of equal parts of all classes, within which every image is as likely as any other (PBRS).

    Args:
        capacity: How many images it holds.
        seed: Of what leaves it.
    """

    def __init__(self, capacity: int, seed: int) -> None:
        self.capacity = capacity
        self._draws = Draws(seed)
        self.images: tuple[Tensor, ...] = ()
        self.labels: tuple[int, ...] = ()
        self.counts: dict[int, int] = {}
        self.seen = 0  # images that were offered

    def add(self, image: Tensor, label: int) -> None:
        """Offers an image, which takes the place of another where the memory is full, or is left out."""
        self.seen += 1
        self.counts[label] = self.counts.get(label, 0) + 1
        if len(self.labels) >= self.capacity:
            leaves = self._leaves(label)
            if leaves is None:
                return
            self.images = self.images[:leaves] + self.images[leaves + 1 :]
            self.labels = self.labels[:leaves] + self.labels[leaves + 1 :]
        self.images, self.labels = (*self.images, image), (*self.labels, label)

    def _leaves(self, label: int) -> int | None:
        """Which place is given up for an image of a class; None: the image is left out."""
        sizes = {k: self.labels.count(k) for k in sorted(set(self.labels))}
        largest = [k for k, size in sizes.items() if size == max(sizes.values())]
        if label not in largest:
            loses = largest[self._below(len(largest))]
        elif self._uniform() <= sizes[label] / self.counts[label]:
            loses = label
        else:
            return None
        places = [at for at, k in enumerate(self.labels) if k == loses]
        return places[self._below(len(places))]

    def _uniform(self) -> float:
        return float(torch.rand((), generator=self._draws.generator, dtype=torch.float64, device="cpu"))

    def _below(self, count: int) -> int:
        return int(self._uniform() * count)

    def reset(self) -> None:
        """Empty."""
        self._draws.reset()
        self.images, self.labels, self.counts, self.seen = (), (), {}, 0

    def memory(self) -> _Held:
        """The images, which are never written to, and what is drawn next."""
        return _Held(self.images, self.labels, tuple(self.counts.items()), self.seen, self._draws.memory())

    def recall(self, memory: _Held) -> None:
        """Holds those again."""
        self.images, self.labels, self.counts, self.seen = *memory[:2], dict(memory.counts), memory.seen
        self._draws.recall(memory.draws)


class _Note(LearningAdaptor):
    """Predicts each image by itself, sorts it into a memory, and every so often takes a step on that."""

    def __init__(
        self,
        network: nn.Module,
        *,
        share: float,
        every: int,
        memory: ReservoirMemory,
        optimizer: OptimizerFactory,
        reset_every: int | None,
        predict: str,
    ) -> None:
        super().__init__(network, reset_every=reset_every)
        self._share, self._every = share, every
        self._bank = memory
        self._optimizer = KeptOptimizer(optimizer)
        self._predict_after = predict == "after"
        self._rebuild()

    def _build(self) -> AdaptiveNetwork:
        special = partial(_stand_ins, share=self._share)
        return AdaptiveNetwork(self.source, norm=None, learns="norms", special=special)

    def _parts(self) -> Sequence[Part]:
        return self._bank, self._optimizer

    def _learn(self, images: Tensor) -> Adaptation:
        for held in self._bank.images[:1]:
            check_same_size(held, images)
        before = self._first_pass(images, grad=False)
        if not finite(before):
            why = "the logits are not finite"
            return self._fall_back(images, self._run_source(images), {}, why)
        logits, loss = before.clone(), None
        labels = logits.argmax(1).tolist()
        for at, image in enumerate(images):
            self._bank.add(image.detach().clone(), labels[at])
            if self._bank.seen % self._every:
                continue
            taken = self._update(images)
            if isinstance(taken, str):
                return self._fall_back(images, before, {}, taken)
            loss = taken
            rest = images[at + 1 :]
            if len(rest) > 0:  # they come after the step
                with torch.no_grad():
                    logits[at + 1 :] = self._pass(rest)
                labels = logits.argmax(1).tolist()
        if self._predict_after and loss is not None:
            with torch.no_grad():
                logits = self._pass(images)
        return Adaptation(logits.detach(), before.detach(), loss, {}, None)

    def _update(self, like: Tensor) -> float | str | None:
        """A step on the memory as one batch; the loss, or why there can be none."""
        images = torch.stack(self._bank.images).to(like)
        with self._following():
            loss = entropy(in_loss_precision(self._pass(images))).mean()
            learnable = self._main.learnable()
            why_not = take_step(loss, learnable, self._optimizer) if learnable else None
            # The statistics are kept now: they count for the next images of this batch.
            self._main.settle()
        return why_not or loss.item()

    @contextmanager
    def _following(self) -> Iterator[None]:
        """The norms measure the memory meanwhile."""
        norms = [norm for norm in self._main.norms.values() if isinstance(norm, AwareNorm)]
        for norm in norms:
            norm.following = True
        try:
            yield
        finally:
            for norm in norms:
                norm.following = False


def _stand_ins(network: nn.Module, share: float) -> dict[str, AwareNorm]:
    layers = {name: m for name, m in network.named_modules() if isinstance(m, InstanceAwareBatchNorm2d)}
    if not layers or any(layer.running_mean is None for layer in layers.values()):
        raise UnsupportedNetwork(
            f"NOTE needs a network that was trained with instance-aware batch norm and has its running statistics, and "
            f"{type(network).__name__} is none; train one with `domainadaptor train ... --norm iabn`"
        )
    return {name: AwareNorm(layer, share=share) for name, layer in layers.items()}


@method(
    paper="Gong et al., NOTE",
    year=2022,
    kind="loss",
    forwards="1, and 1 for every 64 images",
    backwards="1 for every 64 images",
    needs=("altered training",),
)
def note(
    network: nn.Module,
    *,
    capacity: Capacity = 64,
    update_every: UpdateEvery = 64,
    share: BankShare = 0.01,
    lr: LearningRate = 1e-4,
    optimizer: Optimizer = "adam",
    momentum: Momentum = 0.9,
    reset_every: ResetEvery = None,
    predict: Predict = "before",
    seed: Seed = 0,
) -> Adaptor:
    """Instance-aware norms and a class-balanced buffer.

    Args:
        network: A network trained with instance-aware batch norm (`domainadaptor train ... --norm iabn`).
        predict: "before" an image is used as published, or "after" the batch with one more forward pass.
        seed: Random seed of the images that leave the buffer.
    """
    return _Note(
        network,
        share=float(share),
        every=int(update_every),
        memory=ReservoirMemory(int(capacity), int(seed)),
        optimizer=optimizer_called(optimizer, lr=lr, momentum=momentum),
        reset_every=reset_every,
        predict=predict,
    )
