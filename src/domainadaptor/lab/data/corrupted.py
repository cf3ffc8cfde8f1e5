"""Images of one domain, corrupted as they are read: a domain per corruption."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from PIL import Image

from domainadaptor.errors import BadOption
from domainadaptor.lab.data.corruptions import CORRUPTIONS, corrupt
from domainadaptor.lab.data.domains import Domain, Reader
from domainadaptor.lab.data.preprocessing import Preprocessing
from domainadaptor.lab.data.seeds import derived_seed

CLEAN = "clean"


@dataclass(frozen=True)
class FittedReader:
    """Reads another reader's images at one size."""

    source: Reader
    preprocessing: Preprocessing

    def __call__(self, name: str) -> Image.Image:
        """The image, resized and cropped."""
        return self.preprocessing.fit(self.source(name))

    def check(self, name: str) -> None:
        """As the other reader does."""
        self.source.check(name)

    def stamp(self, name: str) -> str:
        """The other reader's: the size is in the name that `repr` gives this one."""
        return self.source.stamp(name)

    def mark(self, name: str) -> str:
        """The other reader's."""
        return self.source.mark(name)


@dataclass(frozen=True)
class CorruptedReader:
    """Corrupts another reader's images; the same image is corrupted in the same way every time."""

    source: Reader
    corruption: str
    severity: int
    constants: Literal["cifar", "imagenet"]
    seed: int

    def __call__(self, name: str) -> Image.Image:
        """The corrupted image, of the same size; its randomness follows from all that is known about it."""
        names = (zlib.crc32(text.encode(errors="surrogateescape")) for text in (self.corruption, name))
        seed = derived_seed(self.seed, self.severity, *names)
        return corrupt(self.source(name), self.corruption, self.severity, constants=self.constants, seed=seed)

    def check(self, name: str) -> None:
        """Nothing: the same file is looked at in the clean domain, and once is enough."""

    def stamp(self, name: str) -> str:
        """Of the image, and of what is done to it."""
        done = f"{self.corruption}-{self.severity}-{self.constants}-{self.seed}"
        return f"{self.source.stamp(name)}-{done}"

    def mark(self, name: str) -> str:
        """Of the image, and of what is done to it."""
        return f"{self.source.mark(name)}-{self.corruption}-{self.severity}-{self.constants}-{self.seed}"


def with_corruptions(
    clean: Domain, read: Reader, severity: int, constants: Literal["cifar", "imagenet"], seed: int
) -> Mapping[str, Domain]:
    """The clean domain, read by `read`, and one for each of the fifteen corruptions, with the same images in each."""
    corrupted = {
        name: replace(clean, name=name, read=CorruptedReader(read, name, severity, constants, seed))
        for name in CORRUPTIONS
    }
    return {CLEAN: replace(clean, name=CLEAN, read=read), **corrupted}


def check_severity(severity: object) -> None:
    """Refuses anything but a whole number from 1 to 5.

    Raises:
        BadOption: It is another.
    """
    if isinstance(severity, bool) or severity not in range(1, 6):
        raise BadOption(f"severity={severity!r}: expected a whole number from 1, the mildest, to 5")
