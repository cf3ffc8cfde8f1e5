"""Data sets as folders on disk: where they may lie, which classes they have, and what is said when they do not fit."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import Image

from domainadaptor.data.domains import Domain, DomainDataset
from domainadaptor.data.images import SUFFIXES, list_files, read_image
from domainadaptor.data.splits import check_labels, listed_split, seeded_sentence, seeded_split
from domainadaptor.errors import BadFile
from domainadaptor.options import suggestion

ROOT_VARIABLE = "DOMAINADAPTOR_DATA"


@dataclass(frozen=True)
class FileReader:
    """Reads image files below a folder."""

    folder: Path

    def __call__(self, name: str) -> Image.Image:
        """The image as RGB; links are followed, since people build data sets of them."""
        path = (self.folder / name).resolve()
        return read_image(path, path.parent)

    def stamp(self, name: str) -> str:
        """Size and time of the last change."""
        seen = os.stat(self.folder / name)
        return f"{seen.st_size}-{seen.st_mtime_ns}"


def data_root(root: Path | None) -> Path:
    """The folder that was given, or that the variable names.

    Raises:
        BadFile: There is none.
    """
    given = root or (Path(os.environ[ROOT_VARIABLE]) if os.environ.get(ROOT_VARIABLE) else None)
    if given is None:
        raise BadFile(f"where is the data? say --root FOLDER, or set the variable {ROOT_VARIABLE}")
    if not given.is_dir():
        raise BadFile(f"no folder at {str(given)!r}: --root (or {ROOT_VARIABLE}) is the folder that holds the data")
    return given


def find_base(name: str, root: Path, places: Sequence[str], domains: Mapping[str, Sequence[str]]) -> Path:
    """The folder that holds all domains: the root itself or one of the usual places below it.

    Args:
        name: Of the data set, for messages.
        root: Where to look.
        places: Folders below the root, as published or as known code bases have them; "" is the root itself.
        domains: Domain -> the names that its folder may have.

    Raises:
        BadFile: No place has them all; the message says where it looked and what it found.
    """
    tried: list[tuple[Path, list[str]]] = []
    for place in places:
        base = root / place
        if not base.is_dir():
            continue
        missing = [domain for domain, names in domains.items() if _folder(base, names) is None]
        if not missing:
            return base
        tried.append((base, missing))
    looked = ", ".join(repr(place or ".") for place in places)
    best = min(tried, key=lambda entry: len(entry[1]), default=None)
    found = "none of these folders exists"
    if best is not None:
        found = f"nearest is {str(best[0])!r}, which has {_listing(best[0])} and lacks {', '.join(best[1])}"
    expected = "; ".join(f"{domain} ({' or '.join(names)})" for domain, names in domains.items())
    raise BadFile(
        f"no {name} below {str(root)!r}: looked in {looked}; {found}. Expected one folder a domain: {expected}"
    )


def domain_folder(base: Path, names: Sequence[str]) -> Path:
    """The folder of a domain, under one of its names, whatever the case."""
    found = _folder(base, names)
    assert found is not None, "find_base has seen it"
    return found


def read_tree(
    name: str,
    domains: Mapping[str, Path],
    seed: int,
    classes: Sequence[str] | None = None,
    aliases: Mapping[str, str] | None = None,
) -> DomainDataset:
    """Domains as folders of class folders, with a seeded split.

    Args:
        name: Of the data set.
        domains: Domain -> its folder.
        seed: Of the split.
        classes: The classes that are expected; None takes those that are there.
        aliases: Folder name -> class, for layouts that name them otherwise.

    Raises:
        BadFile: A class is not known, or a domain has no image.
    """
    folders = {domain: _class_folders(folder, aliases or {}) for domain, folder in domains.items()}
    known = tuple(classes or sorted({kind for found in folders.values() for kind in found}))
    _check_classes(name, domains, folders, known)
    built: dict[str, Domain] = {}
    skipped: dict[str, str] = {}
    for domain, folder in domains.items():
        named = []
        for kind, places in folders[domain].items():
            for place in places:
                for path in list_files(place):
                    file = path.relative_to(folder).as_posix()
                    if why := _unusable(path):
                        skipped[f"{domain}/{file}"] = why
                    else:
                        named.append((file, known.index(kind)))
        for stray in _strays(folder):
            skipped[f"{domain}/{stray.name}"] = "not in a class folder"
        if not named:
            raise BadFile(
                f"{name}: no images in domain {domain!r} ({str(folder)!r}); expected class folders with images "
                f"({', '.join(sorted(SUFFIXES))}), found {_listing(folder)}"
            )
        built[domain] = Domain(domain, seeded_split(domain, named, seed), FileReader(folder))
    return DomainDataset(name, known, built, seeded_sentence(seed), skipped)


def with_lists(
    dataset: DomainDataset, lists: Mapping[str, Mapping[str, str]], beside: Sequence[Path], first_label: int
) -> DomainDataset:
    """The same data set with its published split, where the lists lie beside the images; as it is where they do not.

    Args:
        dataset: As read from the folders.
        lists: Domain -> "train" and "val" -> file name; names in it begin with the domain's folder.
        beside: Folders in which the lists may be.
        first_label: The label of the first class in the lists: 0 or 1.

    Raises:
        BadFile: Only some of the lists are there, or they do not fit the images.
    """
    wanted = {name for files in lists.values() for name in files.values()}
    folder = next((place for place in beside if any((place / name).is_file() for name in wanted)), None)
    if folder is None:
        return dataset
    absent = sorted(name for name in wanted if not (folder / name).is_file())
    if absent:
        raise BadFile(
            f"{dataset.name}: split lists in {str(folder)!r} are incomplete, {', '.join(absent[:4])} missing; "
            "complete them, or move them away for a seeded split"
        )
    domains: dict[str, Domain] = {}
    skipped = dict(dataset.skipped)
    for name, domain in dataset.domains.items():
        listed = listed_split({split: folder / file for split, file in lists[name].items()}, first_label)
        check_labels(listed, len(dataset.classes), f"{dataset.name}, lists of {name}")
        there = {example.name: example.label for example in domain.examples}
        examples = []
        for example in listed:
            file = example.name.partition("/")[2]
            if file not in there:
                skipped[f"{name}/{file}"] = "in the published list, but not on disk"
            elif there[file] != example.label:
                raise BadFile(
                    f"{dataset.name}: {example.name} is {dataset.classes[example.label]} in the list and "
                    f"{dataset.classes[there[file]]} by its folder; the lists belong to other images"
                )
            else:
                examples.append(example._replace(name=file))
        unlisted = set(there) - {example.name for example in examples}
        skipped |= {f"{name}/{file}": "on disk, but in no published list" for file in sorted(unlisted)}
        domains[name] = replace(domain, examples=tuple(sorted(examples)))
    return replace(dataset, domains=domains, splits="the published lists", skipped=skipped)


def _check_classes(
    name: str, domains: Mapping[str, Path], folders: Mapping[str, Mapping[str, object]], known: Sequence[str]
) -> None:
    for domain, found in folders.items():
        for kind in found:
            if kind not in known:
                raise BadFile(
                    f"{name}: {str(domains[domain] / kind)!r} is not a class of it; {suggestion(kind, known)}; "
                    "is it another data set? --root with the set `folders` reads any classes"
                )
    nowhere = [kind for kind in known if not any(kind in found for found in folders.values())]
    if nowhere:
        raise BadFile(f"{name}: no folder for the classes {', '.join(nowhere[:8])} in any domain of {list(domains)}")


def _class_folders(folder: Path, aliases: Mapping[str, str]) -> dict[str, list[Path]]:
    """Class -> its folders; several where a published split is laid out as folders."""
    found: dict[str, list[Path]] = {}
    for entry in sorted(folder.iterdir()):
        if entry.is_dir() and not entry.name.startswith("."):
            found.setdefault(aliases.get(entry.name.lower(), entry.name), []).append(entry)
    return found


def _strays(folder: Path) -> Iterable[Path]:
    return (p for p in sorted(folder.iterdir()) if p.is_file() and not p.name.startswith("."))


def _unusable(path: Path) -> str | None:
    if path.name.startswith("."):
        return "a hidden file"
    if path.is_dir():
        return "a link to a folder, which is not followed"
    if path.suffix.lower() not in SUFFIXES:
        return f"not named like an image ({', '.join(sorted(SUFFIXES))})"
    if not path.is_file():
        return "a broken link"
    return "an empty file" if path.stat().st_size == 0 else None


def _folder(base: Path, names: Sequence[str]) -> Path | None:
    wanted = {name.lower() for name in names}
    return next((p for p in sorted(base.iterdir()) if p.is_dir() and p.name.lower() in wanted), None)


def _listing(folder: Path) -> str:
    names = sorted(entry.name for entry in folder.iterdir())
    return (", ".join(names[:8]) or "nothing") + (f" and {len(names) - 8} more" if len(names) > 8 else "")
