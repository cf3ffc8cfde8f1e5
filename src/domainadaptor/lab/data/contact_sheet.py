"""A data set at a glance: a few images of each class and domain on one sheet."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from PIL import Image, ImageDraw, ImageFont, ImageOps

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.domains import Domain, DomainDataset, Example
from domainadaptor.lab.files import replacing

_SIDE = 96  # of an image on the sheet
_GAP = 4  # between the images of a class
_MARGIN = 14  # around the sheet, and between classes and domains
_MAX_CLASSES, _MAX_DOMAINS = 10, 20
_ACROSS = 14  # images in a row, roughly
_LINE = 18  # height of a line of text
_PAPER, _INK, _GRAY, _EMPTY, _RED = "white", "#222222", "#707070", "#f0f0f0", "#b3261e"
# The font that has most characters of the names is used; Pillow's default has the Latin ones.
_FONTS = ("DejaVuSans.ttf", "Arial.ttf", "segoeui.ttf", "Arial Unicode.ttf", "NotoSansCJK-Regular.ttc", "msgothic.ttc")

T = TypeVar("T")
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


@dataclass
class ContactSheet:
    """The sheet, a description of what it shows, and the images on it that could not be read."""

    image: Image.Image
    shows: str
    unreadable: dict[str, str] = field(default_factory=dict)  # domain/image -> why

    def save(self, path: Path) -> None:
        """Write the sheet as PNG."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadFile(f"Cannot create the folder {str(path.parent)!r}: {error.strerror}") from error
        with replacing(path) as temporary:
            self.image.save(temporary, format="PNG")


def contact_sheet(dataset: DomainDataset) -> ContactSheet:
    """Draw domains as rows and classes as columns, a few images in each; large data sets are sampled evenly."""
    labels = _spread(range(len(dataset.classes)), _MAX_CLASSES)
    domains = _spread(list(dataset.domains.values()), _MAX_DOMAINS)
    each = min(4, max(1, _ACROSS // len(labels)))
    pen = _Pen([dataset.name, *dataset.classes, *dataset.domains])
    column_width = each * (_SIDE + _GAP) - _GAP
    titles = [pen.lines(dataset.classes[label], column_width) for label in labels]
    names = [pen.lines(domain.name, 170) for domain in domains]
    left = 2 * _MARGIN + max(map(pen.width, ["100,000 images", *(line for lines in names for line in lines)]))
    width = max(left + len(labels) * (column_width + _MARGIN), 560)
    shows = _shows(dataset, len(labels), len(domains), each)
    heading = f"{dataset.name}: {len(dataset.domains)} domains, {len(dataset.classes)} classes, {len(dataset):,} images"
    header = [line for text in (heading, f"Shown: {shows}") for line in pen.lines(text, width - 2 * _MARGIN)]
    top = _MARGIN + _LINE * (len(header) + 1 + max(map(len, titles)))
    image = Image.new("RGB", (width, top + len(domains) * (_SIDE + _MARGIN)), _PAPER)
    sheet, draw = ContactSheet(image, shows), ImageDraw.Draw(image)
    pen.write(draw, (_MARGIN, _MARGIN), header, _INK)
    columns = [left + number * (column_width + _MARGIN) for number in range(len(labels))]
    for x, lines in zip(columns, titles, strict=True):
        pen.write(draw, (x, top - _LINE * len(lines) - 4), lines, _INK)
    for row, (domain, lines) in enumerate(zip(domains, names, strict=True)):
        y = top + row * (_SIDE + _MARGIN)
        pen.write(draw, (_MARGIN, y), lines, _INK)
        pen.write(draw, (_MARGIN, y + _LINE * len(lines)), [f"{len(domain.examples):,} images"], _GRAY)
        for x, label in zip(columns, labels, strict=True):
            chosen = _spread([example for example in domain.examples if example.label == label], each)
            if not chosen:
                draw.rectangle((x, y, x + column_width - 1, y + _SIDE - 1), fill=_EMPTY)
                pen.write(draw, (x + 8, y + 8), ["no images"], _GRAY)
            for number, example in enumerate(chosen):
                _paste(sheet, pen, draw, domain, example, (x + number * (_SIDE + _GAP), y))
    return sheet


def _shows(dataset: DomainDataset, classes: int, domains: int, each: int) -> str:
    pairs = (("domains", domains, len(dataset.domains)), ("classes", classes, len(dataset.classes)))
    some = [f"{shown} of {there} {what}" for what, shown, there in pairs if shown < there]
    which = f"only {' and '.join(some)}; " if some else ""
    return f"{which}{each} image{'s' if each > 1 else ''} of each class and domain"


def _paste(
    sheet: ContactSheet, pen: "_Pen", draw: ImageDraw.ImageDraw, domain: Domain, example: Example, at: tuple[int, int]
) -> None:
    try:
        image = domain.read(example.name)
    except BadFile as error:
        sheet.unreadable[f"{domain.name}/{example.name}"] = str(error)
        draw.rectangle((*at, at[0] + _SIDE - 1, at[1] + _SIDE - 1), outline=_RED, fill=_EMPTY)
        pen.write(draw, (at[0] + 8, at[1] + 8), ["cannot", "be read"], _RED)
        return
    # Small images are enlarged without smoothing.
    smooth = max(image.size) > _SIDE // 2
    method = Image.Resampling.LANCZOS if smooth else Image.Resampling.NEAREST
    fitted = ImageOps.contain(image, (_SIDE, _SIDE), method)
    sheet.image.paste(_EMPTY, (*at, at[0] + _SIDE, at[1] + _SIDE))
    sheet.image.paste(fitted, (at[0] + (_SIDE - fitted.width) // 2, at[1] + (_SIDE - fitted.height) // 2))


def _spread(things: Sequence[T], wanted: int) -> list[T]:
    """Return some of many things, evenly spaced."""
    count = min(len(things), wanted)
    return [things[(2 * at + 1) * len(things) // (2 * count)] for at in range(count)]


class _Pen:
    """Writes names in any language for which a font is installed."""

    def __init__(self, names: Sequence[str]) -> None:
        letters = sorted(set("".join(map(_printable, names))))
        fonts = [font for name in _FONTS if (font := _font(name))] + [ImageFont.load_default(14)]
        self._font, self._missing = min(
            ((font, {letter for letter in letters if not _draws(font, letter)}) for font in fonts),
            key=lambda entry: len(entry[1]),
        )

    def width(self, text: str) -> int:
        """Return the width in pixels."""
        return int(self._font.getlength(text) + 0.999)

    def write(self, draw: ImageDraw.ImageDraw, at: tuple[int, int], lines: Sequence[str], color: str) -> None:
        """Write lines below each other."""
        for number, line in enumerate(lines):
            draw.text((at[0], at[1] + number * _LINE), line, fill=color, font=self._font)

    def lines(self, text: str, width: int, most: int = 3) -> list[str]:
        """Break the text into lines of that width, at the ends of words where possible."""
        text = "".join(self._letter(letter) for letter in _printable(text))
        lines = [""]
        for word in re.findall(r"[^ _-]*[ _-]|[^ _-]+$", text):
            for part in [word] if self.width(word) <= width else word:
                if self.width(lines[-1] + part.rstrip()) > width:
                    lines.append("")
                lines[-1] += part if lines[-1] else part.lstrip()
        if len(lines) > most:
            lines = lines[:most]
            while lines[-1] and self.width(lines[-1] + "...") > width:
                lines[-1] = lines[-1][:-1]
            lines[-1] += "..."
        return [line.rstrip() for line in lines]

    def _letter(self, letter: str) -> str:
        return letter.encode("ascii", "backslashreplace").decode() if letter in self._missing else letter


def _printable(text: str) -> str:
    whole = unicodedata.normalize("NFC", text).encode("utf-8", "backslashreplace").decode()
    return "".join(letter if letter.isprintable() else "?" for letter in whole)


def _font(name: str) -> Font | None:
    try:
        return ImageFont.truetype(name, 14)
    except OSError:
        return None


def _draws(font: Font, letter: str) -> bool:
    if letter.isspace():
        return True
    try:
        mask, empty = font.getmask(letter), font.getmask("\U0010fffe")  # a code point that no font has
    except (UnicodeError, ValueError):
        return False
    return (mask.size, bytes(mask)) != (empty.size, bytes(empty))
