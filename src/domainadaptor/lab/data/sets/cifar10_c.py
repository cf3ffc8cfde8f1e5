"""CIFAR-10-C: CIFAR-10's test images under fifteen corruptions. Hendrycks and Dietterich, ICLR 2019."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.corrupted import CLEAN, with_corruptions
from domainadaptor.lab.data.corruptions import CORRUPTIONS
from domainadaptor.lab.data.domains import Domain, DomainDataset, Example
from domainadaptor.lab.data.image_arrays import ArrayReader, load_array
from domainadaptor.lab.data.image_folder import TEST_ONLY, for_testing, read_image_folders
from domainadaptor.lab.data.locate import data_root, descend, find_folder, folders_in, listing
from domainadaptor.lab.data.sets import NoiseSeed, Severity
from domainadaptor.lab.data.sets.cifar10 import CLASSES, test_images
from domainadaptor.options import Option

__all__ = ["cifar10_c"]

_ARRAYS = ("", "CIFAR-10-C", "CIFAR10-C")
_FOLDERS = ("cifar10/test", "test", "")
_JPEG = "cifar10-jpeg/test"
_SEVERITIES = 5
IMAGES = dict.fromkeys((CLEAN, *CORRUPTIONS), 10_000)
SOURCE = (
    "https://zenodo.org/records/2535967. Unpack as CIFAR-10-C/labels.npy, CIFAR-10-C/fog.npy and so on. For the domain "
    "clean, add CIFAR-10: `domainadaptor data get cifar10`."
)


def cifar10_c(
    root: Path | None = None,
    *,
    severity: Severity = 5,
    jpeg: Annotated[bool, Option("Start from JPEG files of the test images, in cifar10-jpeg/test/<class>/.")] = False,
    seed: NoiseSeed = 0,
) -> DomainDataset:
    """CIFAR-10-C: CIFAR-10's test images under fifteen corruptions: noise, blur, weather and more.

    The published files (labels.npy, fog.npy and so on) are used if they exist. Otherwise the corruptions are computed
    from the lossless test images that `cifar10` reads, or from files in cifar10/test/<class>/: with the same formulas
    and constants, but other random numbers and drawn frost. The domain "clean" exists if these images do.
    """
    base = data_root(root)
    clean = _clean(base, jpeg)
    places = () if jpeg else _ARRAYS
    arrays = next((place for name in places if (place := descend(base, name)) and _has_arrays(place)), None)
    name = f"cifar10-c-{'jpeg-' if jpeg else ''}{severity}"
    if arrays is not None:
        published = {corruption: _published(arrays, corruption, severity) for corruption in CORRUPTIONS}
        domains = ({CLEAN: clean.domains[CLEAN]} if clean else {}) | published
        return DomainDataset(
            name, CLASSES, domains, f"{TEST_ONLY}; the published files", clean.skipped if clean else {}
        )
    if clean is None:
        jpegs = "" if jpeg or descend(base, _JPEG) is None else f" Pass jpeg=true to start from {_JPEG}."
        raise BadFile(
            f"No CIFAR-10-C in {str(base)!r}, which has {listing(base)}: expected labels.npy and {len(CORRUPTIONS)} "
            f"files such as fog.npy, there or in CIFAR-10-C; or CIFAR-10's test images as cifar10/test.npz or in "
            f"{_JPEG if jpeg else _FOLDERS[0]}/<class>/, with the classes {', '.join(CLASSES)}.{jpegs}"
        )
    made = with_corruptions(clean.domains[CLEAN], clean.domains[CLEAN].read, severity, "cifar", seed)
    return DomainDataset(name, CLASSES, made, f"{TEST_ONLY}; corrupted here, with seed {seed}", clean.skipped)


def _clean(root: Path, jpeg: bool) -> DomainDataset | None:
    if not jpeg and (test := test_images(root)):
        return DomainDataset("cifar10-c", CLASSES, {CLEAN: replace(test, name=CLEAN)}, TEST_ONLY)
    for name in (_JPEG,) if jpeg else _FOLDERS:
        place = descend(root, name)
        if place and len(folders_in(place)) == len(CLASSES) and all(find_folder(place, [kind]) for kind in CLASSES):
            return for_testing(read_image_folders("cifar10-c", {CLEAN: place}, 0, CLASSES))
    return None


def _has_arrays(folder: Path) -> bool:
    return any((folder / f"{name}.npy").is_file() for name in ("labels", *CORRUPTIONS))


def _published(folder: Path, corruption: str, severity: int) -> Domain:
    missing = [name for name in ("labels", *CORRUPTIONS) if not (folder / f"{name}.npy").is_file()]
    if missing:
        raise BadFile(f"CIFAR-10-C in {str(folder)!r} is incomplete: {', '.join(missing)} missing (.npy)")
    reader = ArrayReader(folder / f"{corruption}.npy")
    labels, pixels = load_array(folder / "labels.npy"), reader.pixels()
    each, over = divmod(pixels.shape[0] if pixels.ndim else 0, _SEVERITIES)
    images = (each * _SEVERITIES, 32, 32, 3)
    if not each or over or pixels.shape != images or pixels.dtype != np.uint8 or labels.shape != images[:1]:
        raise BadFile(
            f"{str(reader.path)!r}: {pixels.dtype} of shape {pixels.shape}, with labels of shape {labels.shape}; "
            "expected uint8 of shape (50000, 32, 32, 3), the same number of images for each of five severities"
        )
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= len(CLASSES):
        raise BadFile(f"{str(folder / 'labels.npy')!r}: expected whole numbers from 0 to {len(CLASSES) - 1}")
    first = each * (severity - 1)
    examples = tuple(Example(f"{at:05d}", int(labels[at]), "test") for at in range(first, first + each))
    return Domain(corruption, examples, reader)
