"""The images of the page: sent by the browser and kept in memory, or the sample digits."""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from PIL import Image

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.corrupted import CorruptedReader, FittedReader
from domainadaptor.lab.data.domains import Reader
from domainadaptor.lab.data.images import check_image_bytes, read_image_bytes
from domainadaptor.lab.data.locate import fold
from domainadaptor.lab.data.preprocessing import Preprocessing
from domainadaptor.lab.data.sets.digits import digits

MAX_BYTES = 32 * 1024**2  # of one image
MAX_STORED = 512 * 1024**2  # of all images
_MAX_PIXELS = 50_000_000  # of one image
_SAMPLES = 200  # digits of a style
_SMALL = 64  # pixels: up to here, networks get the corruptions of CIFAR


class ImageStore:
    """Image files by the hash of their content, in bounded memory: the oldest ones make room."""

    def __init__(self, limit: int = MAX_STORED) -> None:
        self._limit, self._held = limit, 0
        self._files: OrderedDict[str, bytes] = OrderedDict()

    def add(self, data: bytes) -> str:
        """Keep an image and return its id; raise BadFile if it is none."""
        check_image_bytes(data, _MAX_PIXELS)
        key = hashlib.sha256(data).hexdigest()
        self._held += len(data) - len(self._files.pop(key, b""))
        self._files[key] = data
        while self._held > self._limit:
            self._held -= len(self._files.popitem(last=False)[1])
        return key

    def find(self, wanted: Mapping[str, str]) -> "StoredReader":
        """Return a reader of some images, from names to ids."""
        try:
            return StoredReader({name: self._files[key] for name, key in wanted.items()})
        except KeyError:
            raise BadFile(
                f"Some images are no longer in memory, which holds {self._limit // 1024**2} MB. Choose them again"
            ) from None


@dataclass(frozen=True)
class StoredReader(Reader):
    """Reads images from memory."""

    files: Mapping[str, bytes]

    def __call__(self, name: str) -> Image.Image:
        """Return the image as RGB."""
        return read_image_bytes(self.files[name], _MAX_PIXELS)

    def stamp(self, name: str) -> str:
        """Return a hash of the file."""
        return hashlib.sha256(self.files[name]).hexdigest()


@dataclass(frozen=True)
class Pictures:
    """Names of images, what their folders are called, and their reader."""

    names: Sequence[str]
    folders: Sequence[str]
    read: Reader

    def labels(self, classes: Sequence[str]) -> list[str]:
        """Return the class that each folder is named after, or "" where it is none."""
        known = {fold(name): name for name in classes}
        return [known.get(fold(folder), "") for folder in self.folders]

    def fitted(self, preprocessing: Preprocessing, corruption: str | None, severity: int) -> Reader:
        """Return a reader of the images at a network's input size, spoiled or not."""
        fitted = FittedReader(self.read, preprocessing)
        if corruption is None:
            return fitted
        return CorruptedReader(
            fitted, corruption, severity, "cifar" if preprocessing.size <= _SMALL else "imagenet", seed=0
        )


def sample_pictures(style: str) -> Pictures:
    """Return test digits in a style."""
    known = digits()
    domain = known.domain(style)
    examples = domain.select("test")[:_SAMPLES]
    return Pictures([e.name for e in examples], [known.classes[e.label] for e in examples], domain.read)


def own_pictures(reader: StoredReader) -> Pictures:
    """Return images that the browser sent."""
    return Pictures(list(reader.files), [PurePosixPath(name).parent.name for name in reader.files], reader)
