"""Streams of batches that mislead adaptation, and ordinary ones for comparison."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from domainadaptor.lab.data.seeds import derived_seed
from domainadaptor.options import check_choice


class LabeledImages(NamedTuple):
    """Normalized images and their labels."""

    images: Tensor  # (N, C, H, W)
    labels: Tensor  # (N,)


@dataclass(frozen=True)
class StreamImages:
    """The images that streams consist of."""

    domains: Mapping[str, LabeledImages]
    main: str  # streams of a single domain draw from this one
    normalized: Callable[[Tensor], Tensor]  # from values between 0 and 1 to the network's input

    def of_main(self) -> LabeledImages:
        """Return the images of the main domain."""
        return self.domains[self.main]


class _Request(NamedTuple):
    """One batch of a stream."""

    source: StreamImages
    at: int
    batches: int
    size: int
    first: torch.Generator  # in the same state for every batch
    generator: torch.Generator

    def some(self, images: Tensor, size: int | None = None) -> Tensor:
        """Draw images with replacement."""
        return images[torch.randint(len(images), (size or self.size,), generator=self.generator)]

    def classes(self) -> list[int]:
        return sorted(set(self.source.of_main().labels.tolist()))

    def of_class(self, label: int) -> Tensor:
        images, labels = self.source.of_main()
        return images[labels == label]


def _one_class(request: _Request) -> Tensor:
    """All images of all batches have the same class."""
    classes = request.classes()
    return request.some(request.of_class(classes[int(torch.randint(len(classes), (), generator=request.first))]))


def _sorted(request: _Request) -> Tensor:
    """One class after the other, once through all of them."""
    classes = request.classes()
    return request.some(request.of_class(classes[request.at * len(classes) // request.batches]))


def _noise(request: _Request) -> Tensor:
    """Uniform noise."""
    shape = request.source.of_main().images.shape[1:]
    return request.source.normalized(torch.rand(request.size, *shape, generator=request.generator))


def _constant(request: _Request) -> Tensor:
    """A lens cap: all images of a batch have one uniform color, which changes between batches."""
    channels, height, width = request.source.of_main().images.shape[1:]
    color = torch.rand(1, channels, 1, 1, generator=request.generator)
    return request.source.normalized(color.expand(request.size, channels, height, width))


def _alternating(request: _Request) -> Tensor:
    """Each batch comes from another domain than the previous one."""
    domains = list(request.source.domains.values())
    return request.some(domains[request.at % len(domains)].images)


def _tiny(request: _Request) -> Tensor:
    """Batches of one and two images in turn."""
    return request.some(request.source.of_main().images, 1 + request.at % 2)


def _shuffled(request: _Request) -> Tensor:
    """Ordinary batches of one domain."""
    return request.some(request.source.of_main().images)


def _domains(request: _Request) -> Tensor:
    """Ordinary batches, one domain after the other."""
    domains = list(request.source.domains.values())
    return request.some(domains[request.at * len(domains) // request.batches].images)


_KINDS: dict[str, Callable[[_Request], Tensor]] = {
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


def stream(kind: str, source: StreamImages, *, batches: int, batch_size: int, seed: int) -> Iterator[Tensor]:
    """Yield batches of a kind; each one depends on the seed and its number."""
    check_choice("kind", kind, KINDS)
    number = KINDS.index(kind)
    for at in range(batches):
        first = torch.Generator().manual_seed(derived_seed(seed, number))
        generator = torch.Generator().manual_seed(derived_seed(seed, number, at))
        yield _KINDS[kind](_Request(source, at, batches, batch_size, first, generator))
