"""Finding a data set on disk, and explaining what is missing when it is not there."""

import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path

from domainadaptor.errors import BadFile

ROOT_VARIABLE = "DOMAINADAPTOR_DATA"
_SHOWN = 8  # names in a message


def data_root(root: Path | None) -> Path:
    """Return the given folder, or the one that the environment variable names."""
    given = root or (Path(os.environ[ROOT_VARIABLE]) if os.environ.get(ROOT_VARIABLE) else None)
    if given is None:
        raise BadFile(f"No data directory: pass --root or set {ROOT_VARIABLE}.")
    given = given.expanduser()
    if not given.is_dir():
        raise BadFile(f"No folder {str(given)!r}: pass the folder that holds the data as --root, or in {ROOT_VARIABLE}")
    return given


def data_roots(root: Path | None) -> list[Path]:
    """Return the folders that may hold shared files such as weights: the given one and that of the variable."""
    return list(dict.fromkeys([data_root(root), *([data_root(None)] if os.environ.get(ROOT_VARIABLE) else [])]))


def find_domains(
    name: str, root: Path, places: Sequence[str], domains: Mapping[str, Sequence[str]], classes: Sequence[str]
) -> dict[str, Path]:
    """Return the folder of each domain; all of them are in the root or in one of the usual places below it.

    Folders are compared by `fold`; the first of the places that has all domains is taken.
    """
    tried: list[tuple[Path, list[str]]] = []
    for place in ("", *places):
        base = descend(root, place)
        if base is None:
            continue
        found = {domain: folder for domain, names in domains.items() if (folder := find_folder(base, names))}
        if len(found) == len(domains):
            return found
        tried.append((base, [domain for domain in domains if domain not in found]))
    # On a tie the deepest folder: the others only lead to it.
    base, missing = min(tried, key=lambda entry: (len(entry[1]), -len(entry[0].parts)))
    expected = "; ".join(f"{domain} ({' or '.join(names)})" for domain, names in domains.items())
    raise BadFile(
        f"No {name} in {str(root)!r} or below it in {', '.join(map(repr, places))}. {_hint(root, domains, classes)}"
        f"The closest match is {str(base)!r}: it has {listing(base)}, and lacks {', '.join(missing)}. "
        f"Expected {len(domains)} domain folders: {expected}; each with {len(classes)} class folders: {some(classes)}"
    )


def find_folder(base: Path, names: Sequence[str]) -> Path | None:
    """Return the folder with the first of those names that exists, compared by `fold`."""
    there = {fold(folder.name): folder for folder in reversed(folders_in(base))}
    return next((there[fold(name)] for name in names if fold(name) in there), None)


def descend(root: Path, place: str) -> Path | None:
    """Return the folder at a path below the root such as "PACS/kfold", compared by `fold`; "" is the root."""
    current: Path | None = root
    for part in place.split("/") if place else []:
        current = find_folder(current, [part]) if current else None
    return current


def folders_in(base: Path) -> list[Path]:
    """Return the folders and links to folders directly in a folder, sorted, without hidden ones."""
    try:
        entries = sorted(base.iterdir())
    except OSError as error:
        raise BadFile(f"Cannot list {str(base)!r}: {error.strerror or error}") from error
    return [entry for entry in entries if not is_hidden(entry.name) and _is_folder(entry)]


def only_folders(base: Path) -> bool:
    """Return whether a folder contains folders and no files."""
    return bool(folders_in(base)) and not any(entry.is_file() for entry in base.iterdir())


def is_hidden(name: str) -> bool:
    """Return whether a folder is hidden or was left by an archive program."""
    return name.startswith((".", "__MACOSX"))


def _is_folder(entry: Path) -> bool:
    """Return whether it is a folder, or a link to one that is not above it, which would count images twice."""
    try:
        if not entry.is_dir():
            return False
        return not entry.is_symlink() or not entry.parent.resolve().is_relative_to(entry.resolve())
    except OSError:  # circular links
        return False


def fold(name: str) -> str:
    """Remove what people write differently in a name: case, spaces, hyphens, underscores, composed letters."""
    return re.sub(r"[\s_-]+", "", unicodedata.normalize("NFC", name).casefold())


def some(names: Sequence[str]) -> str:
    """Return the first few names and how many more there are."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (", ".join(names[:_SHOWN]) or "nothing") + more


def listing(folder: Path) -> str:
    """Return what a folder contains, shortened; folders come first."""
    entries = sorted(folder.iterdir(), key=lambda entry: (not entry.is_dir(), entry.name))
    return some([f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries])


def _hint(root: Path, domains: Mapping[str, Sequence[str]], classes: Sequence[str]) -> str:
    """Explain it if the root is a domain or a class of the data set."""
    known = {fold(name): domain for domain, names in domains.items() for name in names}
    resolved = root.resolve()
    for folder, what in ((resolved, "its domain"), (resolved.parent, "a folder of its domain")):
        if domain := known.get(fold(folder.name)):
            return f"This looks like {what} {domain}: pass {str(folder.parent)!r} instead. "
    if {fold(folder.name) for folder in folders_in(root)} & {fold(name) for name in classes}:
        return f"Its folders are classes. If it is one of the domains, pass {str(resolved.parent)!r} instead. "
    return ""
