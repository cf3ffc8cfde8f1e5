"""Protocols: the order of test images and when the adaptor is reset; the same seed gives the same order."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np

from domainadaptor.errors import BadOption
from domainadaptor.options import Option, check_count, coerce_options, defaults_of, suggestion


class ImageRef(NamedTuple):
    """One test image."""

    domain: str
    position: int  # in the domain's examples
    label: int  # for orders by label and for scores; no method sees it


@dataclass(frozen=True)
class Segment:
    """Batches that belong together."""

    name: str
    batches: tuple[tuple[ImageRef, ...], ...]
    fresh: bool  # reset the adaptor before the first of them


Images = Mapping[str, Sequence[ImageRef]]  # domain -> its test images, shuffled
Protocol = Callable[..., list[Segment]]
_Subset = Annotated[int, Option("Images per subset.", ge=1)]
_Rounds = Annotated[int, Option("Number of passes over all domains.", ge=1)]
_Concentration = Annotated[
    float,
    Option(
        "Concentration of the Dirichlet distribution that spreads each class over as many slots as there are batches; "
        "0 sorts by label. Of 64 images in seven classes, the most frequent one has four fifths at 0.01, three fifths "
        "at 0.1, a third at 1, a fifth at 10.",
        ge=0,
    ),
]


def leave_one_out(images: Images, batch_size: int, seed: int) -> list[Segment]:
    """All images of a domain, shuffled; reset before each domain."""
    return [Segment(domain, _batches(items, batch_size), fresh=True) for domain, items in images.items()]


def few_data(images: Images, batch_size: int, seed: int, *, subset: _Subset = 64) -> list[Segment]:
    """Each domain in small subsets; reset before each subset."""
    return [
        Segment(f"{domain} {start // subset + 1}", _batches(items[start : start + subset], batch_size), fresh=True)
        for domain, items in images.items()
        for start in range(0, len(items), subset)
    ]


def continual(images: Images, batch_size: int, seed: int, *, rounds: _Rounds = 1) -> list[Segment]:
    """One domain after the other, in the given order; never reset."""
    return [
        Segment(domain if rounds == 1 else f"{domain} {turn + 1}", _batches(items, batch_size), fresh=turn == at == 0)
        for turn in range(rounds)
        for at, (domain, items) in enumerate(images.items())
    ]


def mixed_batches(images: Images, batch_size: int, seed: int) -> list[Segment]:
    """Batches of a single domain, shuffled over all domains; never reset."""
    batches = [batch for items in images.values() for batch in _batches(items, batch_size)]
    order = np.random.default_rng([seed, 1]).permutation(len(batches))
    return [Segment("+".join(images), tuple(batches[at] for at in order), fresh=True)]


def mixed_images(images: Images, batch_size: int, seed: int) -> list[Segment]:
    """Images of all domains mixed within each batch; never reset."""
    items = [item for items in images.values() for item in items]
    order = np.random.default_rng([seed, 2]).permutation(len(items))
    return [Segment("+".join(images), _batches([items[at] for at in order], batch_size), fresh=True)]


def label_shift(images: Images, batch_size: int, seed: int, *, concentration: _Concentration = 0.0) -> list[Segment]:
    """Labels in runs, as in a video stream; reset before each domain."""
    segments = []
    for domain, items in images.items():
        rng = np.random.default_rng([seed, 3])  # per domain, so that its order does not depend on other domains
        if concentration == 0:
            ordered = sorted(items, key=lambda item: item.label)  # stable: the shuffle stays within a class
        else:
            ordered = _dealt(items, max(1, len(items) // batch_size), concentration, rng)
        segments.append(Segment(domain, _batches(ordered, batch_size), fresh=True))
    return segments


PROTOCOLS: dict[str, Protocol] = {
    "leave-one-out": leave_one_out,
    "few-data": few_data,
    "continual": continual,
    "mixed-batches": mixed_batches,
    "mixed-images": mixed_images,
    "label-shift": label_shift,
}


def protocol_options(name: str) -> dict[str, Any]:
    """Return the options of a protocol with their defaults."""
    return defaults_of(find_protocol(name))


def check_protocol(name: str, options: Mapping[str, Any]) -> None:
    """Check a protocol and its options."""
    arrange(name, {"": []}, 1, 0, options)


def arrange(name: str, images: Images, batch_size: int, seed: int, options: Mapping[str, Any]) -> list[Segment]:
    """Return the segments of a protocol; they contain every image, also in smaller last batches."""
    check_count("batch_size", batch_size, low=1)
    return find_protocol(name)(images, batch_size, seed, **coerce_options(find_protocol(name), options, name))


def find_protocol(name: str) -> Protocol:
    """Return the protocol of that name; its keyword-only parameters are the options."""
    if name not in PROTOCOLS:
        raise BadOption(f"Unknown protocol {name!r}; {suggestion(name, PROTOCOLS)}")
    return PROTOCOLS[name]


def shuffled(items: Sequence[ImageRef], seed: int, most: int | None) -> list[ImageRef]:
    """Return at most `most` of a domain's images in a seeded order that does not depend on other domains."""
    order = np.random.default_rng([seed, 0, 0]).permutation(len(items))[:most]
    return [items[at] for at in order]


def _batches(items: Sequence[ImageRef], batch_size: int) -> tuple[tuple[ImageRef, ...], ...]:
    return tuple(tuple(items[start : start + batch_size]) for start in range(0, len(items), batch_size))


def _dealt(items: Sequence[ImageRef], slots: int, concentration: float, rng: np.random.Generator) -> list[ImageRef]:
    """Spread the images of each class over slots by random shares, and return the slots in order, each shuffled."""
    held: list[list[ImageRef]] = [[] for _ in range(slots)]
    for label in sorted({item.label for item in items}):
        own = [item for item in items if item.label == label]
        shares = rng.dirichlet([concentration] * slots)
        ends = np.rint(np.cumsum(shares) * len(own)).astype(int)
        ends[-1] = len(own)
        for slot, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            held[slot] += own[start:end]
    return [slot[at] for slot in held for at in rng.permutation(len(slot))]
