"""A data set at a glance: an image of each class and domain on one sheet."""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from PIL import Image, ImageOps

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.domains import Domain, DomainDataset

_SIDE, _MARGIN = 96, 4  # pixels of an image, and between images
_MOST = 20  # classes, and domains

T = TypeVar("T")


class ContactSheet(NamedTuple):
    """Domains as rows and classes as columns."""

    image: Image.Image
    domains: list[str]
    classes: list[str]


def contact_sheet(dataset: DomainDataset) -> ContactSheet:
    """Draw the first image of each class and domain; of many classes or domains, some evenly spaced ones are shown."""
    domains = _spread(list(dataset.domains.values()))
    labels = _spread(range(len(dataset.classes)))
    step = _SIDE + _MARGIN
    sheet = Image.new("RGB", (len(labels) * step, len(domains) * step), "white")
    for row, domain in enumerate(domains):
        for column, label in enumerate(labels):
            sheet.paste(_tile(domain, label), (column * step, row * step))
    return ContactSheet(sheet, [domain.name for domain in domains], [dataset.classes[label] for label in labels])


def _tile(domain: Domain, label: int) -> Image.Image:
    """Return the first readable image of a class; gray if there is none."""
    for example in domain.examples:
        if example.label == label:
            try:
                image = domain.read(example.name)
            except BadFile:
                continue
            # Small images are enlarged without smoothing.
            method = Image.Resampling.LANCZOS if max(image.size) > _SIDE // 2 else Image.Resampling.NEAREST
            return ImageOps.pad(image, (_SIDE, _SIDE), method, color="white")
    return Image.new("RGB", (_SIDE, _SIDE), "#e0e0e0")


def _spread(things: Sequence[T]) -> list[T]:
    """Return some of many things, evenly spaced."""
    count = min(len(things), _MOST)
    return [things[(2 * at + 1) * len(things) // (2 * count)] for at in range(count)]
