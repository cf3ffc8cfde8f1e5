"""Streams of batches that mislead adaptation, and ordinary ones to compare them with."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from domainadaptor.lab.data.seeds import derived_seed
from domainadaptor.options import check_choice


class Labeled(NamedTuple):
    """Images as a network sees them, and what they show."""

    images: Tensor  # (N, C, H, W)
    labels: Tensor  # (N,)


@dataclass(frozen=True)
class Pool:
    """What streams are made of."""

    domains: Mapping[str, Labeled]
    home: str  # the domain that streams of one domain are drawn from
    normalized: Callable[[Tensor], Tensor]  # from values between 0 and 1 to what the network sees

    def at_home(self) -> Labeled:
        """The images of the one domain."""
        return self.domains[self.home]


class _Moment(NamedTuple):
    """Which batch of a stream is asked for."""

    pool: Pool
    at: int
    batches: int
    size: int
    first: torch.Generator  # the same for every batch
    draw: torch.Generator

    def some(self, images: Tensor, size: int | None = None) -> Tensor:
        """So many of the images, by chance."""
        return images[torch.randint(len(images), (size or self.size,), generator=self.draw)]

    def classes(self) -> list[int]:
        """The classes that there are images of."""
        return sorted(set(self.pool.at_home().labels.tolist()))

    def of_class(self, label: int) -> Tensor:
        """The images of a class."""
        images, labels = self.pool.at_home()
        return images[labels == label]


def _one_class(moment: _Moment) -> Tensor:
    """Every image of every batch shows the same class."""
    classes = moment.classes()
    return moment.some(moment.of_class(classes[int(torch.randint(len(classes), (), generator=moment.first))]))


def _sorted(moment: _Moment) -> Tensor:
    """One class after the other, once through all of them."""
    classes = moment.classes()
    return moment.some(moment.of_class(classes[moment.at * len(classes) // moment.batches]))


def _noise(moment: _Moment) -> Tensor:
    """No picture at all: every value of every pixel by chance."""
    shape = moment.pool.at_home().images.shape[1:]
    return moment.pool.normalized(torch.rand(moment.size, *shape, generator=moment.draw))


def _constant(moment: _Moment) -> Tensor:
    """A lens cap: all images of a batch are of one even color, another one in each batch."""
    channels, height, width = moment.pool.at_home().images.shape[1:]
    color = torch.rand(1, channels, 1, 1, generator=moment.draw)
    return moment.pool.normalized(color.expand(moment.size, channels, height, width))


def _alternating(moment: _Moment) -> Tensor:
    """Each batch comes from another domain than the one before."""
    domains = list(moment.pool.domains.values())
    return moment.some(domains[moment.at % len(domains)].images)


def _tiny(moment: _Moment) -> Tensor:
    """One image, two images, one image, and so on."""
    return moment.some(moment.pool.at_home().images, 1 + moment.at % 2)


def _shuffled(moment: _Moment) -> Tensor:
    """Ordinary batches of one domain."""
    return moment.some(moment.pool.at_home().images)


def _domains(moment: _Moment) -> Tensor:
    """Ordinary batches, one domain after the other, once through all of them."""
    domains = list(moment.pool.domains.values())
    return moment.some(domains[moment.at * len(domains) // moment.batches].images)


_KINDS: dict[str, Callable[[_Moment], Tensor]] = {
    "one-class": _one_class,
    "sorted": _sorted,
    "noise": _noise,
    "constant": _constant,
    "alternating": _alternating,
    "tiny": _tiny,
    "shuffled": _shuffled,
    "domains": _domains,
}
ORDINARY = ("shuffled", "domains")
HOSTILE = tuple(kind for kind in _KINDS if kind not in ORDINARY)
KINDS = tuple(_KINDS)


def stream(kind: str, pool: Pool, *, batches: int, batch_size: int, seed: int) -> Iterator[Tensor]:
    """So many batches of a kind; each follows from the seed and its number.

    Raises:
        BadOption: There is no such kind.
    """
    check_choice("kind", kind, KINDS)
    number = KINDS.index(kind)
    for at in range(batches):
        first = torch.Generator().manual_seed(derived_seed(seed, number))
        draw = torch.Generator().manual_seed(derived_seed(seed, number, at))
        yield _KINDS[kind](_Moment(pool, at, batches, batch_size, first, draw))
