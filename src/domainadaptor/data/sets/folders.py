"""A user's own domains: any folder of domain folders of class folders."""

from pathlib import Path

from domainadaptor.data.domains import DomainDataset
from domainadaptor.data.tree import data_root, read_tree
from domainadaptor.errors import BadFile

__all__ = ["folders"]


def folders(root: Path | None = None, *, seed: int = 0) -> DomainDataset:
    """Your own domains: root/<domain>/<class>/images, with whatever names they have."""
    base = data_root(root)
    domains = {entry.name: entry for entry in sorted(base.iterdir()) if entry.is_dir() and entry.name[0] != "."}
    if not domains:
        raise BadFile(f"no folders below {str(base)!r}: expected {base.name}/<domain>/<class>/images")
    flat = [name for name, folder in domains.items() if not any(entry.is_dir() for entry in folder.iterdir())]
    if flat:
        raise BadFile(
            f"{str(base / flat[0])!r} has no class folders: expected {base.name}/<domain>/<class>/images. "
            f"If the folders of {base.name} are classes, move them into one folder for their domain"
        )
    return read_tree(base.name, domains, seed)
