"""Batches of images and labels: per domain for training, in a seeded order for testing."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.augment import augment
from domainadaptor.lab.data.domains import Split
from domainadaptor.lab.data.image_cache import DomainImages
from domainadaptor.lab.data.prefetch import prefetch
from domainadaptor.lab.data.preprocessing import Preprocessing
from domainadaptor.lab.data.seeds import derived_seed


class DomainBatch(NamedTuple):
    """Labeled images of one domain, as the network sees them."""

    images: Tensor  # (N, 3, H, W), normalized
    labels: Tensor  # (N,)
    domain: str


class TrainingBatches:
    """Augmented batches, one per domain and step, determined by the seed, the epoch and the step.

    Every domain contributes the same number of images to a step, so small domains repeat more often. With `rounds`
    above 1, a step has that many batches of each domain, one round after the other.
    """

    def __init__(
        self, sources: Sequence[DomainImages], preprocessing: Preprocessing, batch_size: int, seed: int, rounds: int = 1
    ) -> None:
        self._sources, self._preprocessing, self._seed = list(sources), preprocessing, seed
        self._positions = [
            [at for at, example in enumerate(s.domain.examples) if example.split == "train"] for s in self._sources
        ]
        if empty := [s.domain.name for s, found in zip(self._sources, self._positions, strict=True) if not found]:
            raise BadFile(f"Domain {empty[0]!r} has no training images: all of them are for validation or testing")
        self._orders: dict[tuple[int, int], np.ndarray] = {}
        self._each = images_each(batch_size, len(self._sources))
        self.rounds = rounds
        self.steps = max(1, sum(map(len, self._positions)) // (self._each * len(self._sources) * rounds))

    def epoch(self, epoch: int) -> Iterator[list[DomainBatch]]:
        """Yield the steps of one epoch, each with a batch per domain."""
        return prefetch(self._step(epoch, step) for step in range(self.steps))

    def each_round(self, epoch: int) -> Iterator[list[DomainBatch]]:
        """Yield the batches of one epoch, one of each domain at a time."""
        domains = len(self._sources)
        for step in self.epoch(epoch):
            for start in range(0, len(step), domains):
                yield step[start : start + domains]

    def _step(self, epoch: int, step: int) -> list[DomainBatch]:
        first = (epoch * self.steps + step) * self.rounds
        rounds = range(first, first + self.rounds)
        return [self._batch(number, turn) for turn in rounds for number in range(len(self._sources))]

    def _batch(self, number: int, turn: int) -> DomainBatch:
        """Return the batch of a domain in a round, counted from the start of training."""
        source = self._sources[number]
        images, there = self._readable(number, turn * self._each)
        generator = torch.Generator().manual_seed(derived_seed(self._seed, number, turn))
        images = self._preprocessing.normalized(augment(images, self._preprocessing.size, generator))
        labels = torch.tensor([source.domain.examples[at].label for at in there])
        return DomainBatch(images, labels, source.domain.name)

    def _readable(self, number: int, first: int) -> tuple[Tensor, list[int]]:
        """Return one batch from an index of the sequence on; later images replace unreadable ones."""
        source, end = self._sources[number], first + self._each
        images, there = source.take([self._at(number, index) for index in range(first, end)])
        # Two passes contain every image: if none of them can be read, no image can.
        patience = 2 * len(self._positions[number])
        last = end + patience
        while len(there) < self._each and end < last:
            later = range(end, end + self._each - len(there))
            more, found = source.take([self._at(number, index) for index in later])
            images, there, end = torch.cat([images, more]), there + found, later.stop
            last = end + patience if found else last
        if not there:
            raise BadFile(f"None of the training images of {source.domain.name!r} can be read: {source.skipped}")
        return images, there

    def _at(self, number: int, index: int) -> int:
        """Return an element of the endless sequence of a domain: one shuffled pass after the other."""
        positions = self._positions[number]
        turn, offset = divmod(index, len(positions))
        return positions[int(self._order(number, turn)[offset])]

    def _order(self, number: int, turn: int) -> np.ndarray:
        key = (number, turn)
        order = self._orders.get(key)
        if order is None:  # replaced, not modified: two threads may ask at once
            order = np.random.default_rng([self._seed, number, turn]).permutation(len(self._positions[number]))
            self._orders = {k: v for k, v in self._orders.items() if k[0] != number} | {key: order}
        return order


def images_each(batch_size: int, domains: int) -> int:
    """Return how many images of each domain a batch has: the same number, at least one."""
    return max(1, batch_size // domains)


def ordered_batches(
    images: DomainImages, preprocessing: Preprocessing, split: Split, batch_size: int, seed: int | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield images and labels of a split of a domain, shuffled by the seed, or in file order without one."""
    examples = images.domain.examples
    wanted = {example.name for example in images.domain.select(split)}
    positions = [at for at, example in enumerate(examples) if example.name in wanted]
    if seed is not None:
        order = np.random.default_rng(seed).permutation(len(positions))
        positions = [positions[at] for at in order]

    def batch(chosen: list[int]) -> tuple[Tensor, Tensor]:
        pixels, there = images.take(chosen)
        return preprocessing.normalized(pixels), torch.tensor([examples[at].label for at in there])

    chunks = (positions[start : start + batch_size] for start in range(0, len(positions), batch_size))
    return (pair for pair in prefetch(batch(chunk) for chunk in chunks) if len(pair[1]))
