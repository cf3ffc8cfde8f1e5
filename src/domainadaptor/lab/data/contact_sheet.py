"""A data set at a glance: a few images of each class and domain on one sheet."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from PIL import Image, ImageDraw, ImageFont, ImageOps

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.domains import Domain, DomainDataset, Example

_SIDE, _MARGIN = 96, 14  # of an image, and around classes and domains
_LEFT, _TOP = 190, 80  # where the images begin
_MAX_CLASSES, _MAX_DOMAINS = 10, 20
_ACROSS = 14  # images in a row, roughly
_INK, _EMPTY, _RED = "#222222", "#f0f0f0", "#b3261e"

T = TypeVar("T")


@dataclass
class ContactSheet:
    """The sheet, a description of what it shows, and the images on it that could not be read."""

    image: Image.Image
    shows: str
    unreadable: dict[str, str] = field(default_factory=dict)  # domain/image -> why


def contact_sheet(dataset: DomainDataset) -> ContactSheet:
    """Draw domains as rows and classes as columns, a few images in each; large data sets are sampled evenly."""
    labels = _spread(range(len(dataset.classes)), _MAX_CLASSES)
    domains = _spread(list(dataset.domains.values()), _MAX_DOMAINS)
    each = min(4, max(1, _ACROSS // len(labels)))
    across, down = each * _SIDE + _MARGIN, _SIDE + _MARGIN
    image = Image.new("RGB", (max(560, _LEFT + len(labels) * across), _TOP + len(domains) * down), "white")
    sheet, draw = ContactSheet(image, _shows(dataset, len(labels), len(domains), each)), ImageDraw.Draw(image)
    heading = f"{dataset.name}: {len(dataset.domains)} domains, {len(dataset.classes)} classes, {len(dataset):,} images"
    for y, text in ((12, heading), (32, f"Shown: {sheet.shows}")):
        _write(draw, (_MARGIN, y), text, image.width - 2 * _MARGIN)
    for column, label in enumerate(labels):
        _write(draw, (_LEFT + column * across, _TOP - 20), dataset.classes[label], across - _MARGIN)
    for row, domain in enumerate(domains):
        y = _TOP + row * down
        _write(draw, (_MARGIN, y), domain.name, _LEFT - 2 * _MARGIN)
        _write(draw, (_MARGIN, y + 18), f"{len(domain.examples):,} images", _LEFT - 2 * _MARGIN)
        for column, label in enumerate(labels):
            chosen = _spread([example for example in domain.examples if example.label == label], each)
            for number, example in enumerate(chosen):
                tile = _tile(domain, example, sheet.unreadable)
                image.paste(tile, (_LEFT + column * across + number * _SIDE, y))
    return sheet


def _shows(dataset: DomainDataset, classes: int, domains: int, each: int) -> str:
    pairs = (("domains", domains, len(dataset.domains)), ("classes", classes, len(dataset.classes)))
    some = [f"{shown} of {there} {what}" for what, shown, there in pairs if shown < there]
    which = f"only {' and '.join(some)}; " if some else ""
    return f"{which}{each} image{'s' if each > 1 else ''} of each class and domain"


def _tile(domain: Domain, example: Example, unreadable: dict[str, str]) -> Image.Image:
    tile = Image.new("RGB", (_SIDE, _SIDE), _EMPTY)
    try:
        image = domain.read(example.name)
    except BadFile as error:
        unreadable[f"{domain.name}/{example.name}"] = str(error)
        tile.paste(_RED, (0, 0, _SIDE, 4))
        _write(ImageDraw.Draw(tile), (8, 8), "unreadable", _SIDE)
        return tile
    # Small images are enlarged without smoothing.
    method = Image.Resampling.LANCZOS if max(image.size) > _SIDE // 2 else Image.Resampling.NEAREST
    fitted = ImageOps.contain(image, (_SIDE - 2, _SIDE - 2), method)
    tile.paste(fitted, ((_SIDE - fitted.width) // 2, (_SIDE - fitted.height) // 2))
    return tile


def _write(draw: ImageDraw.ImageDraw, at: tuple[int, int], text: str, width: int) -> None:
    """Write one line, shortened to the width; letters that Pillow's font lacks are escaped."""
    font = ImageFont.load_default(14)
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    text = text.encode("latin-1", "backslashreplace").decode("latin-1")
    while draw.textlength(text, font) > width:
        text = text.removesuffix("...")[:-1] + "..."
    draw.text(at, text, fill=_INK, font=font)


def _spread(things: Sequence[T], wanted: int) -> list[T]:
    """Return some of many things, evenly spaced."""
    count = min(len(things), wanted)
    return [things[(2 * at + 1) * len(things) // (2 * count)] for at in range(count)]
