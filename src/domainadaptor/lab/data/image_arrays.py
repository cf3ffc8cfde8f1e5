"""Many small images in one file: NumPy arrays, and sheets with one image per row of pixels."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from PIL import Image

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.domains import Reader

Array = np.ndarray


@dataclass(frozen=True)
class ArrayReader(Reader):
    """Reads images by number from a file of (N, side, side, 3) bytes: .npy, .npz with `images`, or a .png sheet."""

    path: Path
    side: int = 32

    def __call__(self, name: str) -> Image.Image:
        """Return the image of that number."""
        return Image.fromarray(np.array(self.pixels()[int(name)]))

    def pixels(self) -> Array:
        """Return all images; a .npy file is mapped to memory, which loads pages on demand."""
        if self.path.suffix == ".npy":
            return load_array(self.path)
        return _loaded(self.path, self.side, self.stamp(""))

    def stamp(self, name: str) -> str:
        """Return the file's size and modification time."""
        status = self.path.stat()
        return f"{status.st_size}-{status.st_mtime_ns}"

    def mark(self, name: str) -> str:
        """Return the file's name."""
        return self.path.name


def load_array(path: Path, part: str = "") -> Array:
    """Return the array of a .npy file as a memory map, or a part of a .npz file; nothing in it can run code."""
    try:
        loaded = np.load(path, mmap_mode="r", allow_pickle=False)
        if part and not isinstance(loaded, np.ndarray):
            return np.asarray(loaded[part])
        if not isinstance(loaded, np.ndarray):
            raise ValueError("it is a zip archive; unpack it")
    except (OSError, ValueError, EOFError, KeyError, BadZipFile) as error:
        raise BadFile(f"{str(path)!r} is not a complete {path.suffix} file: {error}") from error
    return loaded


@lru_cache(8)
def _loaded(path: Path, side: int, stamp: str) -> Array:
    if path.suffix == ".npz":
        return load_array(path, "images")
    with Image.open(path) as sheet:
        return np.asarray(sheet.convert("RGB")).reshape(-1, side, side, 3)
