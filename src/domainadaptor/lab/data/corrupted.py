"""Domains whose images are corrupted when they are read: one domain per corruption."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from PIL import Image

from domainadaptor.lab.data.corruptions import CORRUPTIONS, corrupt
from domainadaptor.lab.data.domains import Domain, Reader
from domainadaptor.lab.data.preprocessing import Preprocessing
from domainadaptor.lab.data.seeds import derived_seed, name_seed

CLEAN = "clean"
Constants = Literal["cifar", "imagenet"]


@dataclass(frozen=True)
class FittedReader(Reader):
    """Resizes and crops the images of another reader."""

    source: Reader
    preprocessing: Preprocessing

    def __call__(self, name: str) -> Image.Image:
        """Return the image, resized and cropped."""
        return self.preprocessing.fit(self.source(name))

    def stamp(self, name: str) -> str:
        """Return the stamp of the original image; the size is part of `repr`."""
        return self.source.stamp(name)

    def mark(self, name: str) -> str:
        """Return the mark of the original image."""
        return self.source.mark(name)


@dataclass(frozen=True)
class CorruptedReader(Reader):
    """Corrupts the images of another reader, each one always in the same way."""

    source: Reader
    corruption: str
    severity: int
    constants: Constants
    seed: int

    def __call__(self, name: str) -> Image.Image:
        """Return the corrupted image, of the same size."""
        seed = derived_seed(self.seed, self.severity, name_seed(self.corruption), name_seed(name))
        return corrupt(self.source(name), self.corruption, self.severity, constants=self.constants, seed=seed)

    def stamp(self, name: str) -> str:
        """Return the stamp of the original image and the corruption."""
        return f"{self.source.stamp(name)}-{self._corruption()}"

    def mark(self, name: str) -> str:
        """Return the mark of the original image and the corruption."""
        return f"{self.source.mark(name)}-{self._corruption()}"

    def _corruption(self) -> str:
        return f"{self.corruption}-{self.severity}-{self.constants}-{self.seed}"


def with_corruptions(
    clean: Domain, read: Reader, severity: int, constants: Constants, seed: int
) -> Mapping[str, Domain]:
    """Return the clean domain, read by `read`, and one for each of the fifteen corruptions, with the same images."""
    corrupted = {
        name: replace(clean, name=name, read=CorruptedReader(read, name, severity, constants, seed))
        for name in CORRUPTIONS
    }
    return {CLEAN: replace(clean, name=CLEAN, read=read), **corrupted}
