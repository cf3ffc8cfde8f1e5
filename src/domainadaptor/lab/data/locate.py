"""Where a data set lies on disk, and what is said when it is not there."""

import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path

from domainadaptor.errors import BadFile

ROOT_VARIABLE = "DOMAINADAPTOR_DATA"
_SHOWN = 8  # names in a message


def data_root(root: Path | None) -> Path:
    """The folder that was given, or that the variable names.

    Raises:
        BadFile: There is none.
    """
    given = root or (Path(os.environ[ROOT_VARIABLE]) if os.environ.get(ROOT_VARIABLE) else None)
    if given is None:
        raise BadFile(f"where is the data? say --root FOLDER, or set the variable {ROOT_VARIABLE}")
    given = given.expanduser()
    if not given.is_dir():
        raise BadFile(f"no folder at {str(given)!r}: --root (or {ROOT_VARIABLE}) is the folder that holds the data")
    return given


def data_roots(root: Path | None) -> list[Path]:
    """Where things that belong to no data set may lie: the folder that was given, and the one the variable names.

    Raises:
        BadFile: There is none.
    """
    return list(dict.fromkeys([data_root(root), *([data_root(None)] if os.environ.get(ROOT_VARIABLE) else [])]))


def find_domains(
    name: str, root: Path, places: Sequence[str], domains: Mapping[str, Sequence[str]], classes: Sequence[str]
) -> dict[str, Path]:
    """The folders of all domains, which lie beside each other: in the root itself or in a usual place below it.

    Args:
        name: Of the data set, for messages.
        root: Where to look.
        places: Folders below the root, as published or as known code bases have them; the first that fits is taken.
            The root itself is looked at before them.
        domains: Domain -> the names that its folder may have; see `fold` for what may differ.
        classes: Names of the class folders, for messages.

    Raises:
        BadFile: No place has them all; the message says where it looked, what it found and what it expected.
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
    # Of places that lack as much, the deepest: the others are only on the way there.
    base, missing = min(tried, key=lambda entry: (len(entry[1]), -len(entry[0].parts)))
    looked = ", ".join(repr(place) for place in places)
    expected = "; ".join(f"{domain} ({' or '.join(names)})" for domain, names in domains.items())
    raise BadFile(
        f"no {name} in {str(root)!r}: looked there and in {looked} below it. {_hint(root, domains, classes)}"
        f"Nearest is {str(base)!r}: it has {listing(base)}, and lacks {', '.join(missing)}. "
        f"Expected {len(domains)} domain folders: {expected}; each with {len(classes)} class folders: {some(classes)}"
    )


def find_folder(base: Path, names: Sequence[str]) -> Path | None:
    """The folder under the first of those names that is there, however it is written; see `fold`."""
    there = {fold(folder.name): folder for folder in reversed(folders_in(base))}
    return next((there[fold(name)] for name in names if fold(name) in there), None)


def descend(root: Path, place: str) -> Path | None:
    """The folder at a path below the root such as "PACS/kfold", however its parts are written; "" is the root."""
    current: Path | None = root
    for part in place.split("/") if place else []:
        current = find_folder(current, [part]) if current else None
    return current


def folders_in(base: Path) -> list[Path]:
    """Folders and links to folders directly in a folder, sorted, without hidden ones and what archives leave behind.

    Raises:
        BadFile: It cannot be looked into.
    """
    try:
        entries = sorted(base.iterdir())
    except OSError as error:
        raise BadFile(f"cannot look into {str(base)!r}: {error.strerror or error}") from error
    return [entry for entry in entries if not is_hidden(entry.name) and _is_folder(entry)]


def only_folders(base: Path) -> bool:
    """Whether a folder holds folders, and no files beside them."""
    return bool(folders_in(base)) and not any(entry.is_file() for entry in base.iterdir())


def is_hidden(name: str) -> bool:
    """Whether a folder is called like those that programs and archives leave beside what they are asked for."""
    return name.startswith((".", "__MACOSX"))


def _is_folder(entry: Path) -> bool:
    """Whether it is a folder, or a link to one that does not hold it: that would count its images twice."""
    try:
        if not entry.is_dir():
            return False
        return not entry.is_symlink() or not entry.parent.resolve().is_relative_to(entry.resolve())
    except OSError:  # links in a circle
        return False


def fold(name: str) -> str:
    """A name without what people write differently: case, blanks, hyphens, underscores, composed letters."""
    return re.sub(r"[\s_-]+", "", unicodedata.normalize("NFC", name).casefold())


def some(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (", ".join(names[:_SHOWN]) or "nothing") + more


def listing(folder: Path) -> str:
    """What is in a folder, shortly; folders first, since they are what one looks for."""
    entries = sorted(folder.iterdir(), key=lambda entry: (not entry.is_dir(), entry.name))
    return some([f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries])


def _hint(root: Path, domains: Mapping[str, Sequence[str]], classes: Sequence[str]) -> str:
    """Whether the root is one domain, or one class, of what was looked for."""
    kinds = {fold(kind) for kind in classes}
    known = {fold(name): domain for domain, names in domains.items() for name in names}
    resolved = root.resolve()
    for steps, folder in enumerate((resolved, resolved.parent)):
        if domain := known.get(fold(folder.name)):
            what = f"its domain {domain}" if steps == 0 else f"a folder of its domain {domain}"
            return f"This looks like {what}: give {str(folder.parent)!r} instead. "
    if any(fold(folder.name) in kinds for folder in folders_in(root)):
        return f"Its folders are classes: is it one of the domains? Then give {str(resolved.parent)!r} instead. "
    return ""
