"""PACS: photo, art painting, cartoon and sketch; 7 classes, 9,991 images. Li et al., ICCV 2017."""

from pathlib import Path

from domainadaptor.data.domains import DomainDataset
from domainadaptor.data.tree import data_root, domain_folder, find_base, read_tree, with_lists

__all__ = ["pacs"]

_CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
_DOMAINS = {
    "art_painting": ("art_painting", "art", "artpainting"),
    "cartoon": ("cartoon",),
    "photo": ("photo",),
    "sketch": ("sketch",),
}
# As published, as in DomainBed, as in Dassl, as the authors' README shows.
_PLACES = ("", "pacs", "PACS", "kfold", "PACS/kfold", "pacs/kfold", "images", "pacs/images", "PACS/images", "pacs_data")


def pacs(root: Path | None = None, *, seed: int = 0) -> DomainDataset:
    """PACS: four styles of the same seven things."""
    base = find_base("PACS", data_root(root), _PLACES, _DOMAINS)
    folders = {domain: domain_folder(base, names) for domain, names in _DOMAINS.items()}
    found = read_tree("pacs", folders, seed, _CLASSES)
    lists = {
        domain: {"train": f"{domain}_train_kfold.txt", "val": f"{domain}_crossval_kfold.txt"} for domain in _DOMAINS
    }
    beside = (base, base.parent, *(place / more for place in (base, base.parent) for more in ("splits", "pacs_label")))
    return with_lists(found, lists, beside, first_label=1)
