"""Any folder of test images with the fifteen common corruptions, made like ImageNet-C."""

from pathlib import Path
from typing import Literal

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.corrupted import CLEAN, FittedReader, with_corruptions
from domainadaptor.lab.data.domains import DomainDataset
from domainadaptor.lab.data.image_folder import for_testing, read_image_folders
from domainadaptor.lab.data.locate import data_root, folders_in, listing, only_folders
from domainadaptor.lab.data.preprocessing import Preprocessing
from domainadaptor.lab.data.sets import NoiseSeed, Severity
from domainadaptor.option_types import Count

__all__ = ["corrupted"]


def corrupted(
    root: Path | None = None,
    *,
    severity: Severity = 5,
    constants: Literal["cifar", "imagenet"] = "imagenet",
    size: Count | None = None,
    seed: NoiseSeed = 0,
) -> DomainDataset:
    """Your own test images, root/<class>/images, clean and with fifteen corruptions: noise, blur, weather and more.

    Args:
        root: Folder that holds the classes.
        constants: Constants of ImageNet-C or of CIFAR-10-C ("cifar").
        size: Side of the images before they are corrupted, since the constants are lengths in pixels; None: 224, or 32
            with the constants of CIFAR-10-C.
    """
    side = (224 if constants == "imagenet" else 32) if size is None else size
    base = data_root(root)
    name = base.resolve().name
    classes = folders_in(base)
    if not classes or all(only_folders(kind) for kind in classes):
        raise BadFile(
            f"{str(base)!r} has {listing(base)}: expected {name}/<class>/images, without a folder for the domain"
        )
    found = for_testing(read_image_folders(name, {CLEAN: base}, 0))
    # ImageNet-C's images are crops of images with a shorter side of 256; CIFAR's are not cropped.
    resize = round(side * 256 / 224) if constants == "imagenet" else side
    fitted = FittedReader(found.domains[CLEAN].read, Preprocessing(side, resize))
    domains = with_corruptions(found.domains[CLEAN], fitted, severity, constants, seed)
    detail = ("-cifar" if constants == "cifar" else "") + (f"-{side}px" if size is not None else "")
    return DomainDataset(f"{name}-corrupted{detail}-{severity}", found.classes, domains, found.splits, found.skipped)
