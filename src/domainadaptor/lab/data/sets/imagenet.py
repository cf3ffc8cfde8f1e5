"""ImageNet's validation images (ILSVRC 2012). Russakovsky et al., IJCV 2015."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import torchvision
from timm.data import ImageNetInfo

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.corrupted import CLEAN
from domainadaptor.lab.data.domains import Domain, DomainDataset
from domainadaptor.lab.data.image_folder import for_testing, read_image_folders
from domainadaptor.lab.data.locate import data_root, descend, fold, folders_in, listing, some

__all__ = ["imagenet"]

_PLACES = ("imagenet/val", "ILSVRC2012/val", "val", "")
IMAGES = {CLEAN: 50_000}
SOURCE = (
    "https://image-net.org/challenges/LSVRC/2012 (an account is needed). Unpack the validation images as "
    "imagenet/val/<class>/, where a class is a WordNet id such as n01440764, an index from 0 to 999, or a name."
)


def imagenet(root: Path | None = None) -> DomainDataset:
    """ImageNet's validation images, for networks with its 1000 classes; there is nothing to train on.

    Folders are named by WordNet id (n01440764), by index (0 to 999, in the order of the published networks' outputs) or
    by name ("tench"). A part of the classes is enough.
    """
    base = data_root(root)
    found = clean_images(base)
    if found is None:
        places = ", ".join(f"{place}/<class>/" for place in _PLACES if place)
        raise BadFile(
            f"No ImageNet in {str(base)!r}, which has {listing(base)}: expected {places} there, or <class>/, where a "
            "class is a WordNet id such as n01440764, an index from 0 to 999, or a name such as tench"
        )
    return found


@lru_cache(1)
def imagenet_classes() -> tuple[str, ...]:
    """Return the 1000 classes of ImageNet, in the order of the logits of published networks."""
    return tuple(torchvision.models.ResNet18_Weights.DEFAULT.meta["categories"])


def clean_images(root: Path) -> DomainDataset | None:
    """Return the validation images below a data root; None if no folder of classes is in one of the usual places."""
    for name in _PLACES:
        place = descend(root, name)
        if place and any(_index(folder.name) is not None for folder in folders_in(place)):
            return labeled(read_image_folders("imagenet", {CLEAN: place}, 0))
    return None


def labeled(found: DomainDataset) -> DomainDataset:
    """Return images for testing, labeled with the classes of ImageNet that their folders name."""
    indices = [_index(folder) for folder in found.classes]
    if unknown := [folder for folder, index in zip(found.classes, indices, strict=True) if index is None]:
        raise BadFile(
            f"{found.name}: {some(unknown)}: expected folders named by a WordNet id such as n01440764, an index from 0 "
            "to 999, or a class such as tench"
        )
    labels = {label: index for label, index in enumerate(indices) if index is not None}

    def relabeled(domain: Domain) -> Domain:
        examples = (example._replace(label=labels[example.label]) for example in domain.examples)
        return replace(domain, examples=tuple(sorted(examples)))

    domains = {name: relabeled(domain) for name, domain in found.domains.items()}
    return for_testing(replace(found, classes=imagenet_classes(), domains=domains))


@lru_cache(1)
def _indices() -> Mapping[str, int]:
    """Return name or WordNet id -> index, folded."""
    ids = ImageNetInfo().label_names()
    return {fold(name): at for names in (imagenet_classes(), ids) for at, name in enumerate(names)}


def _index(folder: str) -> int | None:
    if folder.isascii() and folder.isdecimal():
        return int(folder) if int(folder) < len(imagenet_classes()) else None
    return _indices().get(fold(folder))
