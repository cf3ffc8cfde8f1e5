"""A user's own domains: any folder of domain folders of class folders."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.domains import DomainDataset, Split
from domainadaptor.lab.data.image_folder import SplitFolders, read_tree
from domainadaptor.lab.data.locate import data_root, fold, folders_in, listing, only_folders, some

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


def folders(root: Path | None = None, *, seed: int = 0) -> DomainDataset:
    """Your own domains: root/<domain>/<class>/images, with whatever names they have.

    Where every domain has folders train and val (and test) between it and its classes, they are the split; without val,
    a tenth of train is drawn for it.

    Args:
        root: The folder that holds the domains.
        seed: Of the split into training and validation images.
    """
    base = data_root(root)
    name = base.resolve().name
    expected = f"expected {name}/<domain>/<class>/images"
    domains = {folder.name: folder for folder in folders_in(base)}
    if not domains:
        raise BadFile(f"no folders in {str(base)!r}, which has {listing(base)}: {expected}")
    classes = {domain: folders_in(folder) for domain, folder in domains.items()}
    if not any(classes.values()):
        raise BadFile(
            f"the {len(domains)} folders of {str(base)!r} ({some(list(domains))}) have no folders in them: {expected}. "
            f"Are they classes? Then {str(base)!r} is one domain: give the folder above it, with this domain alone or "
            "beside others"
        )
    if flat := [domain for domain, found in classes.items() if not found]:
        raise BadFile(
            f"{str(domains[flat[0]])!r} has no class folders, but {listing(domains[flat[0]])}: {expected}; move away "
            "what is no domain"
        )
    if split := _split(domains, classes):
        return read_tree(name, domains, seed, split=split)
    deeper = [kind for found in classes.values() for kind in found]
    # Every class holds nothing but folders: the classes are domains, and the domain is the data set.
    if all(only_folders(kind) for kind in deeper):
        first = next(iter(domains.values()))
        _check_parts(first, classes[first.name])
        raise BadFile(
            f"{str(base)!r} seems to be one folder too high: {str(deeper[0])!r} has no images, but "
            f"{listing(deeper[0])}; {expected}. Give {str(first)!r} instead"
        )
    return read_tree(name, domains, seed)


def _split(domains: Mapping[str, Path], classes: Mapping[str, Sequence[Path]]) -> SplitFolders | None:
    """How the domains are split into folders, where they are; refuses some that are beside others that are not."""
    so = [domain for domain, found in classes.items() if _is_split(found)]
    if not so:
        return None
    if other := [domain for domain in domains if domain not in so]:
        raise BadFile(
            f"{str(domains[so[0]])!r} is split into {listing(domains[so[0]])}, but {str(domains[other[0]])!r} has "
            f"{listing(domains[other[0]])}: expected <domain>/<class> or <domain>/<train, val>/<class> in all domains"
        )
    names = dict.fromkeys(fold(folder.name) for found in classes.values() for folder in found)
    return SplitFolders({name: _PARTS[name] for name in names})


def _check_parts(domain: Path, found: Sequence[Path]) -> None:
    """Refuses a split with a folder beside its parts that is none of them, as the copies in VLCS."""
    parts = [folder.name for folder in found if fold(folder.name) in _PARTS]
    others = [folder.name for folder in found if folder.name not in parts]
    if others and any(_PARTS[fold(name)] == "train" for name in parts):
        raise BadFile(
            f"{str(domain)!r} seems to be split into {', '.join(parts)}, but {others[0]!r} beside them is no part of a "
            f"split: expected {', '.join(_PARTS)} alone; move it away. VLCS as published is the set `vlcs`"
        )


def _is_split(found: Sequence[Path]) -> bool:
    """Whether these are the parts of a split and not classes: such names alone, one to train on, folders in each."""
    parts = [_PARTS.get(fold(folder.name)) for folder in found]
    return "train" in parts and len(parts) > 1 and None not in parts and all(folders_in(folder) for folder in found)
