"""Tiny data sets on disk, and readers without files."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.domains import Domain, Example


def picture(path: Path, size: tuple[int, int] = (6, 4)) -> Path:
    """An image file whose color follows from its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, tuple(hashlib.sha256(str(path).encode()).digest()[:3])).save(path)
    return path


def plant(root: Path, *folders: str, images: int = 3, name: str = "{}.png") -> Path:
    """Folders with images, the same file under many names: fast."""
    source = picture(root / ".one.png")
    for folder in folders:
        (root / folder).mkdir(parents=True, exist_ok=True)
        for number in range(images):
            os.link(source, root / folder / name.format(number))
    return root


def names(domain: Domain, part: str | None = None) -> list[str]:
    return [e.name for e in (domain.select(part) if part else domain.examples)]


@dataclass(frozen=True)
class Plain:
    """Reads images of one color, which is their name."""

    side: int = 8
    broken: tuple[str, ...] = ()

    def __call__(self, name):
        if name in self.broken:
            raise BadFile(f"{name} is broken")
        return Image.new("RGB", (self.side, self.side), (int(name), 255 - int(name), 7))

    def mark(self, name):
        return name

    def stamp(self, name):
        return "fixed"


def plain_domain(name="plain", count=10, broken=(), val=()) -> Domain:
    examples = [Example(f"{n:03d}", n % 3, "val" if n in val else "train") for n in range(count)]
    return Domain(name, tuple(examples), Plain(broken=tuple(f"{n:03d}" for n in broken)))
