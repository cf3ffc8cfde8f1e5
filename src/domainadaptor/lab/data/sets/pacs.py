"""PACS: photo, art painting, cartoon and sketch; 7 classes, 9,991 images. Li et al., ICCV 2017."""

from pathlib import Path

from domainadaptor.lab.data.domains import DomainDataset
from domainadaptor.lab.data.image_folder import read_image_folders
from domainadaptor.lab.data.locate import data_root, find_domains
from domainadaptor.lab.data.sets import SplitSeed
from domainadaptor.lab.data.splits import with_lists

__all__ = ["pacs"]

_CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
_DOMAINS = {
    "art_painting": ("art_painting", "art"),
    "cartoon": ("cartoon",),
    "photo": ("photo",),
    "sketch": ("sketch",),
}
IMAGES = {"art_painting": 2048, "cartoon": 2344, "photo": 1670, "sketch": 3929}
SOURCE = (
    "https://domaingeneralization.github.io. Unpack the images as PACS/<domain>/<class>/. The published lists, such as "
    "photo_train_kfold.txt, go beside the domains; without them the split is drawn."
)
# The layouts of DomainBed, the authors' README, Dassl, the publication, Kaggle and SagNet's README.
_PLACES = (
    "PACS", "PACS/kfold", "kfold", "PACS/images", "images", "PACS/Raw images/kfold", "Raw images/kfold", "pacs_data",
    "pacs_data/pacs_data", "PACS/images/kfold", "images/kfold",
)  # fmt: skip
# The folders of the lists in these layouts.
_LISTS = ("", "splits", "pacs_label", "pacs_label/pacs_label", "pacs_split", "Train val splits and h5py files pre-read")


def pacs(root: Path | None = None, *, seed: SplitSeed = 0) -> DomainDataset:
    """PACS: four styles of the same seven things."""
    folders = find_domains("PACS", data_root(root), _PLACES, _DOMAINS, _CLASSES)
    found = read_image_folders("pacs", folders, seed, _CLASSES)
    lists = {d: {"train": f"{d}_train_kfold.txt", "val": f"{d}_crossval_kfold.txt"} for d in _DOMAINS}
    base = folders["photo"].parent
    above = (base, base.parent, base.parent.parent)
    return with_lists(found, lists, [place / name for place in above for name in _LISTS], first_label=1)
