"""A data set at a glance: a few images of each class and domain, in one picture."""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont, ImageOps

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.domains import Domain, DomainDataset, Example
from domainadaptor.lab.files import replacing

_SIDE = 96  # of an image on the sheet
_GAP = 4  # between the images of a class
_MARGIN = 14  # around all, and between classes and domains
_MOST_CLASSES, _MOST_DOMAINS = 10, 20
_ACROSS = 14  # images in a row, roughly
_PAPER, _INK, _GREY, _EMPTY, _RED = "white", "#222222", "#707070", "#f0f0f0", "#b3261e"
# The first that has all letters of the names is taken; Pillow's own has the Latin ones.
_FONTS = ("DejaVuSans.ttf", "Arial.ttf", "segoeui.ttf", "Arial Unicode.ttf", "NotoSansCJK-Regular.ttc", "msgothic.ttc")

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


@dataclass
class ContactSheet:
    """The picture, what it shows in words, and which of its images could not be read."""

    picture: Image.Image
    shows: str
    damaged: dict[str, str] = field(default_factory=dict)  # domain/image -> why

    def save(self, path: Path) -> None:
        """Writes the picture as PNG.

        Raises:
            BadFile: It cannot be written there.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadFile(f"cannot make the folder {str(path.parent)!r}: {error.strerror}") from error
        with replacing(path) as place:
            self.picture.save(place, format="PNG")


def contact_sheet(dataset: DomainDataset) -> ContactSheet:
    """Domains as rows, classes as columns, a few images in each cell; of many classes some, evenly spread."""
    classes = list(_spread(len(dataset.classes), _MOST_CLASSES))
    domains = [list(dataset.domains.values())[at] for at in _spread(len(dataset.domains), _MOST_DOMAINS)]
    each = min(4, max(1, _ACROSS // len(classes)))
    pen = _Pen([dataset.name, *dataset.classes, *dataset.domains])
    shows = _shows(dataset, len(classes), len(domains), each)

    cell = each * (_SIDE + _GAP) - _GAP
    titles = [pen.lines(dataset.classes[label], cell) for label in classes]
    names = [pen.lines(domain.name, 170) for domain in domains]
    left = max(
        2 * _MARGIN + pen.width("100,000 images"),
        2 * _MARGIN + max(pen.width(line) for lines in names for line in lines),
    )
    width = max(left + len(classes) * (cell + _MARGIN), 560)
    images = sum(len(domain.examples) for domain in dataset.domains.values())
    heading = f"{dataset.name}: {len(dataset.domains)} domains, {len(dataset.classes)} classes, {images:,} images"
    header = [line for text in (heading, f"Shown: {shows}") for line in pen.lines(text, width - 2 * _MARGIN)]
    top = _MARGIN + pen.height * (len(header) + 1 + max(map(len, titles)))
    picture = Image.new("RGB", (width, top + len(domains) * (_SIDE + _MARGIN)), _PAPER)
    draw = ImageDraw.Draw(picture)
    pen.write(draw, (_MARGIN, _MARGIN), header, _INK)
    for column, lines in enumerate(titles):
        across = left + column * (cell + _MARGIN)
        pen.write(draw, (across, top - pen.height * len(lines) - 4), lines, _INK)
    sheet = ContactSheet(picture, shows)
    for row, (domain, lines) in enumerate(zip(domains, names, strict=True)):
        down = top + row * (_SIDE + _MARGIN)
        pen.write(draw, (_MARGIN, down), lines, _INK)
        pen.write(draw, (_MARGIN, down + pen.height * len(lines)), [f"{len(domain.examples):,} images"], _GREY)
        for column, label in enumerate(classes):
            corner = (left + column * (cell + _MARGIN), down)
            chosen = _chosen([example for example in domain.examples if example.label == label], each)
            if not chosen:
                draw.rectangle((*corner, corner[0] + cell - 1, down + _SIDE - 1), fill=_EMPTY)
                pen.write(draw, (corner[0] + 8, down + 8), ["no images"], _GREY)
            for at, example in enumerate(chosen):
                _paste(sheet, pen, draw, domain, example, (corner[0] + at * (_SIDE + _GAP), down))
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
        sheet.damaged[f"{domain.name}/{example.name}"] = str(error)
        draw.rectangle((*at, at[0] + _SIDE - 1, at[1] + _SIDE - 1), outline=_RED, fill=_EMPTY)
        pen.write(draw, (at[0] + 8, at[1] + 8), ["cannot", "be read"], _RED)
        return
    # Small images are shown as the pixels that they are.
    smooth = max(image.size) > _SIDE // 2
    method = Image.Resampling.LANCZOS if smooth else Image.Resampling.NEAREST
    fitted = ImageOps.contain(image, (_SIDE, _SIDE), method)
    sheet.picture.paste(_EMPTY, (*at, at[0] + _SIDE, at[1] + _SIDE))
    sheet.picture.paste(fitted, (at[0] + (_SIDE - fitted.width) // 2, at[1] + (_SIDE - fitted.height) // 2))


def _chosen(examples: Sequence[Example], wanted: int) -> list[Example]:
    return [examples[at] for at in _spread(len(examples), wanted)]


def _spread(count: int, wanted: int) -> Iterator[int]:
    """Positions of some of many things, evenly apart."""
    some = min(count, wanted)
    return ((2 * at + 1) * count // (2 * some) for at in range(some))


class _Pen:
    """Writes names of any language, as far as there is a font for it."""

    height = 18

    def __init__(self, names: Sequence[str]) -> None:
        letters = sorted(set("".join(map(_printable, names))))
        fonts = [font for name in _FONTS if (font := _font(name))] + [ImageFont.load_default(14)]
        self._font, self._missing = min(
            ((font, {letter for letter in letters if not _draws(font, letter)}) for font in fonts),
            key=lambda entry: len(entry[1]),
        )

    def width(self, text: str) -> int:
        """In pixels."""
        return int(self._font.getlength(text) + 0.999)

    def write(self, draw: ImageDraw.ImageDraw, at: tuple[int, int], lines: Sequence[str], color: str) -> None:
        """Lines below each other."""
        for number, line in enumerate(lines):
            draw.text((at[0], at[1] + number * self.height), line, fill=color, font=self._font)

    def lines(self, text: str, width: int, most: int = 3) -> list[str]:
        """The text in lines of that width, broken where words end if it can be."""
        text = "".join(self._letter(letter) for letter in _printable(text))
        lines = [""]
        for piece in _pieces(text):
            for part in [piece] if self.width(piece) <= width else piece:
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


def _pieces(text: str) -> Iterator[str]:
    """Words with the blank, hyphen or underscore after them."""
    start = 0
    for at, letter in enumerate(text):
        if letter in " _-":
            yield text[start : at + 1]
            start = at + 1
    yield text[start:]


def _font(name: str) -> Font | None:
    try:
        return ImageFont.truetype(name, 14)
    except OSError:
        return None


def _draws(font: Font, letter: str) -> bool:
    if letter.isspace():
        return True
    try:
        box, empty = font.getmask(letter), font.getmask("\U0010fffe")  # a letter that there never is
    except (UnicodeError, ValueError):
        return False
    return (box.size, bytes(box)) != (empty.size, bytes(empty))
