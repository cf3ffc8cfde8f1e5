"""A user's own domains: any folder of domain folders of class folders."""

from pathlib import Path

from domainadaptor.data.domains import DomainDataset
from domainadaptor.data.places import data_root, folders_in, listing, some
from domainadaptor.data.tree import read_tree
from domainadaptor.errors import BadFile

__all__ = ["folders"]


def folders(root: Path | None = None, *, seed: int = 0) -> DomainDataset:
    """Your own domains: root/<domain>/<class>/images, with whatever names they have.

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
    deeper = [kind for found in classes.values() for kind in found]
    # Every class holds nothing but folders: the classes are domains, and the domain is the data set.
    if all(folders_in(kind) and not any(entry.is_file() for entry in kind.iterdir()) for kind in deeper):
        first = next(iter(domains.values()))
        raise BadFile(
            f"{str(base)!r} seems to be one folder too high: {str(deeper[0])!r} has no images, but "
            f"{listing(deeper[0])}; {expected}. Give {str(first)!r} instead"
        )
    return read_tree(name, domains, seed)
