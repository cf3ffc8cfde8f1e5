"""Batches of images and labels: one per domain for training, in a seeded order for testing."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.augment import augment
from domainadaptor.lab.data.domains import Split
from domainadaptor.lab.data.image_cache import DomainImages
from domainadaptor.lab.data.preprocessing import Preprocessing
from domainadaptor.lab.data.seeds import derived_seed

T = TypeVar("T")


class DomainBatch(NamedTuple):
    """Labeled images of one domain, as the network is to see them."""

    images: Tensor  # (N, 3, H, W), normalized
    labels: Tensor  # (N,)
    domain: str


class TrainingBatches:
    """Augmented batches, one per domain and step; what a step sees follows from the seed, the epoch and the step alone.

    Every domain gives the same number of images to a step; small ones come round more often. With `rounds` above 1 a
    step has that many batches of each domain, one round after the other.
    """

    def __init__(
        self, sources: Sequence[DomainImages], preprocessing: Preprocessing, batch_size: int, seed: int, rounds: int = 1
    ) -> None:
        self._sources = list(sources)
        self._preprocessing = preprocessing
        self._seed = seed
        self._positions = [
            [at for at, example in enumerate(s.domain.examples) if example.split == "train"] for s in self._sources
        ]
        empty = [s.domain.name for s, found in zip(self._sources, self._positions, strict=True) if not found]
        if empty:
            raise BadFile(f"domain {empty[0]!r} has no images to train on: they are all for validation or testing")
        self._held: dict[tuple[int, int], np.ndarray] = {}
        self._each = images_each(batch_size, len(self._sources))
        self.rounds = rounds
        self.steps = max(1, sum(map(len, self._positions)) // (self._each * len(self._sources) * rounds))

    def epoch(self, epoch: int) -> Iterator[list[DomainBatch]]:
        """The steps of one epoch, each a batch per domain."""
        return ahead(self._step(epoch, step) for step in range(self.steps))

    def each_round(self, epoch: int) -> Iterator[list[DomainBatch]]:
        """The batches of one epoch, one of each domain at a time."""
        domains = len(self._sources)
        for step in self.epoch(epoch):
            for start in range(0, len(step), domains):
                yield step[start : start + domains]

    def _step(self, epoch: int, step: int) -> list[DomainBatch]:
        first = (epoch * self.steps + step) * self.rounds
        rounds = range(first, first + self.rounds)
        return [self._batch(number, turn) for turn in rounds for number in range(len(self._sources))]

    def _batch(self, number: int, turn: int) -> DomainBatch:
        """The batch of a domain in a round, counted from the beginning of training."""
        source = self._sources[number]
        images, there = self._readable(number, turn * self._each)
        draw = torch.Generator().manual_seed(derived_seed(self._seed, number, turn))
        images = self._preprocessing.normalized(augment(images, self._preprocessing.size, draw))
        labels = torch.tensor([source.domain.examples[at].label for at in there])
        return DomainBatch(images, labels, source.domain.name)

    def _readable(self, number: int, first: int) -> tuple[Tensor, list[int]]:
        """As many images as a batch has, from a place of the sequence on: later ones stand in for damaged ones.

        Raises:
            BadFile: None of the domain's images can be read.
        """
        source, place = self._sources[number], first + self._each
        images, there = source.take([self._at(number, at) for at in range(first, place)])
        # Two turns of the sequence hold every image: where they have none that can be read, there is none.
        turns = 2 * len(self._positions[number])
        last = place + turns
        while len(there) < self._each and place < last:
            later = range(place, place + self._each - len(there))
            more, found = source.take([self._at(number, at) for at in later])
            images, there, place = torch.cat([images, more]), there + found, later.stop
            last = place + turns if found else last
        if not there:
            raise BadFile(f"none of the training images of {source.domain.name!r} can be read: {source.skipped}")
        return images, there

    def _at(self, number: int, place: int) -> int:
        """The image at a place of the endless sequence of a domain: one shuffle after the other."""
        positions = self._positions[number]
        turn, offset = divmod(place, len(positions))
        return positions[int(self._shuffled(number, turn)[offset])]

    def _shuffled(self, number: int, turn: int) -> np.ndarray:
        key = (number, turn)
        order = self._held.get(key)
        if order is None:  # replaced, not changed: two threads may ask at once
            order = np.random.default_rng([self._seed, number, turn]).permutation(len(self._positions[number]))
            self._held = {k: v for k, v in self._held.items() if k[0] != number} | {key: order}
        return order


def images_each(batch_size: int, domains: int) -> int:
    """How many images of each domain a batch has: the same number, and one at least."""
    return max(1, batch_size // domains)


def ordered_batches(
    pictures: DomainImages, preprocessing: Preprocessing, part: Split, batch_size: int, seed: int | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Images and labels of a part of a domain, shuffled by the seed, or in file order without one."""
    examples = pictures.domain.examples
    wanted = {example.name for example in pictures.domain.select(part)}
    positions = [at for at, example in enumerate(examples) if example.name in wanted]
    if seed is not None:
        order = np.random.default_rng(seed).permutation(len(positions))
        positions = [positions[at] for at in order]

    def batch(chosen: list[int]) -> tuple[Tensor, Tensor]:
        images, there = pictures.take(chosen)
        return preprocessing.normalized(images), torch.tensor([examples[at].label for at in there])

    chunks = (positions[start : start + batch_size] for start in range(0, len(positions), batch_size))
    return (pair for pair in ahead(batch(chunk) for chunk in chunks) if len(pair[1]))


def ahead(items: Iterable[T]) -> Iterator[T]:
    """The same items, the next of which is made while the last is used."""
    iterator = iter(items)
    end = object()
    with ThreadPoolExecutor(max_workers=1) as pool:
        _single(pool)
        waiting = pool.submit(next, iterator, end)
        while (item := waiting.result()) is not end:
            waiting = pool.submit(next, iterator, end)
            yield item  # type: ignore[misc]


def _single(pool: ThreadPoolExecutor) -> None:
    """Makes the thread of a pool compute alone.

    It would start OpenMP threads of its own beside those of the network; where that is more than there are cores,
    all of them wait for each other asleep, and adapting takes twice as long.
    """
    threads = torch.get_num_threads()
    pool.submit(_compute_alone).result()
    torch.set_num_threads(threads)  # later threads begin with the last number that was set


def _compute_alone() -> None:
    torch.get_num_threads()  # a thread that was not asked before its first work begins with everyone's number
    torch.set_num_threads(1)
