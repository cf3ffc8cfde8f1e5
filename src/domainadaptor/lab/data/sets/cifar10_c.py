"""CIFAR-10-C: CIFAR-10's test images under fifteen corruptions. Hendrycks and Dietterich, ICLR 2019."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.corrupted import CLEAN, with_corruptions
from domainadaptor.lab.data.corruptions import CORRUPTIONS
from domainadaptor.lab.data.domains import Domain, DomainDataset, Example, Reader
from domainadaptor.lab.data.image_folder import TEST_ONLY, for_testing, read_image_folders
from domainadaptor.lab.data.locate import data_root, descend, find_folder, folders_in, listing
from domainadaptor.lab.data.sets import NoiseSeed, Severity

__all__ = ["cifar10_c"]

_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_ARRAYS = ("", "CIFAR-10-C", "CIFAR10-C")
_IMAGES = ("cifar10-jpeg/test", "cifar10/test", "test", "")
_SEVERITIES = 5
IMAGES = dict.fromkeys((CLEAN, *CORRUPTIONS), 10_000)
SOURCE = (
    "https://zenodo.org/records/2535967. Unpack as CIFAR-10-C/labels.npy, CIFAR-10-C/fog.npy and so on. For the domain "
    "clean, put CIFAR-10's test images into cifar10/test/<class>/."
)


@dataclass(frozen=True)
class _ArrayReader(Reader):
    """Reads images from a published file without loading it completely."""

    path: Path

    def __call__(self, name: str) -> Image.Image:
        return Image.fromarray(np.array(_load(self.path)[int(name)]))

    def stamp(self, name: str) -> str:
        status = self.path.stat()
        return f"{status.st_size}-{status.st_mtime_ns}"

    def mark(self, name: str) -> str:
        return self.path.name


def cifar10_c(root: Path | None = None, *, severity: Severity = 5, seed: NoiseSeed = 0) -> DomainDataset:
    """CIFAR-10-C: CIFAR-10's test images under fifteen corruptions: noise, blur, weather and more.

    The published files (labels.npy, fog.npy and so on) are used if they exist. Otherwise the corruptions are computed
    from the test images in cifar10-jpeg/test/<class>/ or cifar10/test/<class>/: with the same formulas and constants,
    but other random numbers and drawn frost. The domain "clean" exists if these image files do.
    """
    base = data_root(root)
    clean = _clean(base)
    arrays = next((place for name in _ARRAYS if (place := descend(base, name)) and _has_arrays(place)), None)
    name = f"cifar10-c-{severity}"
    if arrays is not None:
        published = {corruption: _published(arrays, corruption, severity) for corruption in CORRUPTIONS}
        domains = ({CLEAN: clean.domains[CLEAN]} if clean else {}) | published
        return DomainDataset(
            name, _CLASSES, domains, f"{TEST_ONLY}; the published files", clean.skipped if clean else {}
        )
    if clean is None:
        raise BadFile(
            f"No CIFAR-10-C in {str(base)!r}, which has {listing(base)}: expected labels.npy and {len(CORRUPTIONS)} "
            f"files such as fog.npy, there or in CIFAR-10-C; or CIFAR-10's test images in one of "
            f"{', '.join(f'{place}/<class>/' for place in _IMAGES if place)}, with the classes {', '.join(_CLASSES)}"
        )
    made = with_corruptions(clean.domains[CLEAN], clean.domains[CLEAN].read, severity, "cifar", seed)
    return DomainDataset(name, _CLASSES, made, f"{TEST_ONLY}; corrupted here, with seed {seed}", clean.skipped)


def _clean(root: Path) -> DomainDataset | None:
    for name in _IMAGES:
        place = descend(root, name)
        if place and len(folders_in(place)) == len(_CLASSES) and all(find_folder(place, [kind]) for kind in _CLASSES):
            return for_testing(read_image_folders("cifar10-c", {CLEAN: place}, 0, _CLASSES))
    return None


def _has_arrays(folder: Path) -> bool:
    return any((folder / f"{name}.npy").is_file() for name in ("labels", *CORRUPTIONS))


def _published(folder: Path, corruption: str, severity: int) -> Domain:
    missing = [name for name in ("labels", *CORRUPTIONS) if not (folder / f"{name}.npy").is_file()]
    if missing:
        raise BadFile(f"CIFAR-10-C in {str(folder)!r} is incomplete: {', '.join(missing)} missing (.npy)")
    reader = _ArrayReader(folder / f"{corruption}.npy")
    labels, pixels = _load(folder / "labels.npy"), _load(reader.path)
    each, over = divmod(pixels.shape[0] if pixels.ndim else 0, _SEVERITIES)
    images = (each * _SEVERITIES, 32, 32, 3)
    if not each or over or pixels.shape != images or pixels.dtype != np.uint8 or labels.shape != images[:1]:
        raise BadFile(
            f"{str(reader.path)!r}: {pixels.dtype} of shape {pixels.shape}, with labels of shape {labels.shape}; "
            "expected uint8 of shape (50000, 32, 32, 3), the same number of images for each of five severities"
        )
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= len(_CLASSES):
        raise BadFile(f"{str(folder / 'labels.npy')!r}: expected whole numbers from 0 to {len(_CLASSES) - 1}")
    first = each * (severity - 1)
    examples = tuple(Example(f"{at:05d}", int(labels[at]), "test") for at in range(first, first + each))
    return Domain(corruption, examples, reader)


def _load(path: Path) -> np.ndarray:
    """Return a file as a memory map, which loads pages on demand."""
    try:
        loaded = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(loaded, np.ndarray):
            raise ValueError("it is a zip archive; unpack it")
    except (OSError, ValueError, EOFError) as error:
        raise BadFile(f"{str(path)!r} is not a complete .npy file: {error}") from error
    return loaded
