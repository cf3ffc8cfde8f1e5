"""Your own domains: any folder with domain folders that contain class folders."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.domains import DomainDataset, Split
from domainadaptor.lab.data.image_folder import SplitFolders, read_image_folders
from domainadaptor.lab.data.locate import data_root, fold, folders_in, listing, only_folders
from domainadaptor.lab.data.sets import SplitSeed

__all__ = ["folders"]

_PARTS: dict[str, Split] = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "crossval": "val",
    "test": "test",
    "testing": "test",
}


def folders(root: Path | None = None, *, seed: SplitSeed = 0) -> DomainDataset:
    """Your own domains: root/<domain>/<class>/images, with any names; root/<class>/images is a single domain.

    If every domain has folders train and val (and test) above its classes, they are the split; without val, a tenth of
    train is drawn for validation.
    """
    base = data_root(root)
    name = base.resolve().name
    expected = f"expected {name}/<domain>/<class>/images"
    domains = {folder.name: folder for folder in folders_in(base)}
    if not domains:
        raise BadFile(f"No folders in {str(base)!r}, which has {listing(base)}: {expected}")
    classes = {domain: folders_in(folder) for domain, folder in domains.items()}
    if not any(classes.values()):
        return read_image_folders(name, {name: base}, seed)
    if flat := [domain for domain, found in classes.items() if not found]:
        raise BadFile(
            f"{str(domains[flat[0]])!r} has no class folders, but {listing(domains[flat[0]])}: {expected}; move other "
            "folders elsewhere"
        )
    if split := _split(domains, classes):
        return read_image_folders(name, domains, seed, split=split)
    deeper = [kind for found in classes.values() for kind in found]
    if all(only_folders(kind) for kind in deeper):  # they are domains, or a domain has other folders next to its split
        raise BadFile(
            f"{str(deeper[0])!r} has no images, but {listing(deeper[0])}: {expected}. If {str(base)!r} is one level "
            f"too high, pass {str(next(iter(domains.values())))!r}; for a published split, only "
            f"{', '.join(_PARTS)} may be between a domain and its classes"
        )
    return read_image_folders(name, domains, seed)


def _split(domains: Mapping[str, Path], classes: Mapping[str, Sequence[Path]]) -> SplitFolders | None:
    """Return how the domains are split into folders, if they are; raise if only some of them are."""
    split = [domain for domain, found in classes.items() if _is_split(found)]
    if not split:
        return None
    if other := [domain for domain in domains if domain not in split]:
        raise BadFile(
            f"{str(domains[split[0]])!r} is split into {listing(domains[split[0]])}, but {str(domains[other[0]])!r} "
            f"has {listing(domains[other[0]])}: expected <domain>/<class> or <domain>/<train, val>/<class> everywhere"
        )
    names = dict.fromkeys(fold(folder.name) for found in classes.values() for folder in found)
    return SplitFolders({name: _PARTS[name] for name in names})


def _is_split(found: Sequence[Path]) -> bool:
    """Return whether these are split folders and not classes: only such names, one for training, folders in each."""
    parts = [_PARTS.get(fold(folder.name)) for folder in found]
    return "train" in parts and len(parts) > 1 and None not in parts and all(folders_in(folder) for folder in found)
