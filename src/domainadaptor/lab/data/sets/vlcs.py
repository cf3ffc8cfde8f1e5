"""VLCS: photographs from four collections; 5 classes, 10,729 images. Torralba and Efros, CVPR 2011."""

from pathlib import Path

from domainadaptor.lab.data.domains import DomainDataset
from domainadaptor.lab.data.image_folder import SplitFolders, read_image_folders
from domainadaptor.lab.data.locate import data_root, find_domains, fold, folders_in
from domainadaptor.lab.data.sets import SplitSeed

__all__ = ["vlcs"]

_CLASSES = ("bird", "car", "chair", "dog", "person")
_DOMAINS = {
    "caltech": ("CALTECH", "Caltech101"),
    "labelme": ("LABELME",),
    "pascal": ("PASCAL", "VOC2007"),
    "sun": ("SUN", "SUN09"),
}
IMAGES = {"caltech": 1415, "labelme": 2656, "pascal": 3376, "sun": 3282}
SOURCE = "https://github.com/belaalb/G2DM#download-vlcs. Unpack as VLCS/<domain>/<train, crossval, test>/<class>/."
_NUMBERS = {str(number): kind for number, kind in enumerate(_CLASSES)}
# `full` repeats the images of train and crossval.
_SPLIT = SplitFolders({"train": "train", "crossval": "val", "test": "test"}, copies=("full",))


def vlcs(root: Path | None = None, *, seed: SplitSeed = 0) -> DomainDataset:
    """VLCS: five things in photographs from Caltech, LabelMe, PASCAL VOC and SUN.

    The published folders train, crossval and test are used if they exist: for training, for validation, and for
    neither. If a domain has only the published folder full, its images are used.
    """
    folders = find_domains("VLCS", data_root(root), ("VLCS",), _DOMAINS, _CLASSES)
    alone = {domain: inside[0] for domain, folder in folders.items() if len(inside := folders_in(folder)) == 1}
    folders |= {domain: inside for domain, inside in alone.items() if fold(inside.name) in _SPLIT.copies}
    return read_image_folders("vlcs", folders, seed, _CLASSES, aliases=_NUMBERS, split=_SPLIT)
