"""Data sets as folders on disk: domains, in them classes, in them images; with or without a published split."""

import os
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import Image

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.domains import Domain, DomainDataset, Example, Split, Tested
from domainadaptor.lab.data.images import SUFFIXES, check_image, read_image
from domainadaptor.lab.data.locate import find_folder, fold, folders_in, is_hidden, listing, some
from domainadaptor.lab.data.splits import check_labels, read_lists, seeded_sentence, seeded_split
from domainadaptor.options import suggestion

_UNCOMPRESSED = frozenset([".bmp", ".pgm", ".ppm", ".tif", ".tiff"])
TESTING = "all images are for testing, none to train on"


@dataclass(frozen=True)
class FileReader:
    """Reads image files below a folder."""

    folder: Path

    def __call__(self, name: str) -> Image.Image:
        """The image as RGB; links are followed, since people build data sets of them."""
        path = (self.folder / name).resolve()
        return read_image(path, path.parent)

    def check(self, name: str) -> None:
        """Looks at the file's kind and header."""
        path = (self.folder / name).resolve()
        check_image(path, path.parent)

    def stamp(self, name: str) -> str:
        """Size and time of the last change."""
        try:
            seen = os.stat(self.folder / name)
        except OSError:  # gone since it was listed: reading it will say so
            return "gone"
        return f"{seen.st_size}-{seen.st_mtime_ns}"

    def mark(self, name: str) -> str:
        """Size of the file; with a sum of its content where all images of a shape have the same size."""
        size = self.stamp(name).partition("-")[0]
        if Path(name).suffix.lower() not in _UNCOMPRESSED:
            return size
        try:
            return f"{size}-{zlib.crc32((self.folder / name).read_bytes()):08x}"
        except OSError:
            return size


@dataclass(frozen=True)
class SplitFolders:
    """A published split that is laid out as folders between a domain and its classes."""

    parts: Mapping[str, Split]  # folder -> what its images are for
    copies: tuple[str, ...] = ()  # folders that only repeat the others' images
    tested: Tested = "all"


@dataclass(frozen=True)
class _Found:
    """What one domain's folder holds."""

    files: list[tuple[str, str, Split | None]]  # name, class, what for; None where nothing says so
    skipped: dict[str, str]
    classes: list[str]


def read_tree(
    name: str,
    domains: Mapping[str, Path],
    seed: int,
    classes: Sequence[str] | None = None,
    *,
    aliases: Mapping[str, str] | None = None,
    split: SplitFolders | None = None,
    subset: bool = False,
) -> DomainDataset:
    """Domains as folders of class folders, with the split that the folders show, or a seeded one.

    Args:
        name: Of the data set.
        domains: Domain -> its folder.
        seed: Of the split, where none is published.
        classes: The classes that are expected; None takes those that are there.
        aliases: Folder name -> class, for layouts that name them otherwise.
        split: How a published split would be laid out.
        subset: The classes are some of more: folders of others are passed over.

    Raises:
        BadFile: A class is not known or is nowhere, a domain has no image, or a split is only partly there.
    """
    published = split if split and _is_split(name, domains, split) else None
    naming = None if classes is None else _naming(classes, aliases or {})
    found: dict[str, _Found] = {}
    for domain, folder in domains.items():
        found[domain] = _read_domain(folder, published, naming, f"{name}, domain {domain}", subset)
        if not found[domain].files:
            raise BadFile(
                f"{name}: no images in domain {domain!r} ({str(folder)!r}); expected class folders with images "
                f"({', '.join(sorted(SUFFIXES))}), found {listing(folder)}"
            )
    filled = {kind for part in found.values() for _, kind, _ in part.files}
    there = {domain: [kind for kind in part.classes if kind in filled] for domain, part in found.items()}
    known = tuple(classes) if classes is not None else _class_names(name, there)
    if nowhere := [kind for kind in known if kind not in filled]:
        raise BadFile(
            f"{name}: {len(nowhere)} of {len(known)} classes have no image in any of {', '.join(domains)}: "
            f"{some(nowhere)}; found {some(sorted(filled))}"
        )
    labels = {kind: label for label, kind in enumerate(known)}
    built: dict[str, Domain] = {}
    # Folders may show what to train on and what to test on alone.
    drawn = published is None or "val" not in published.parts.values()
    for domain, part in found.items():
        fixed = [Example(file, labels[kind], what) for file, kind, what in part.files if what]
        if drawn:
            named = [(file, labels[kind]) for file, kind, what in part.files if what in (None, "train")]
            fixed = [e for e in fixed if e.split != "train"] + list(seeded_split(domain, named, seed))
        examples = tuple(sorted(fixed))
        built[domain] = Domain(domain, examples, FileReader(domains[domain]), published.tested if published else "all")
    skipped = {f"{domain}/{file}": why for domain, part in found.items() for file, why in sorted(part.skipped.items())}
    for domain, part in found.items():
        empty = dict.fromkeys(kind for kind in part.classes if kind not in filled)
        skipped |= {f"{domain}/{kind}": "a folder without images in any domain, so no class" for kind in empty}
    return DomainDataset(name, known, built, _sentence(published, drawn, seed), skipped)


def _sentence(published: SplitFolders | None, drawn: bool, seed: int) -> str:
    """Where a split comes from, in words for the record."""
    if published is None:
        return seeded_sentence(seed)
    folders = f"the published folders {', '.join(published.parts)}"
    return f"{folders}; of the images to train on, {seeded_sentence(seed)}" if drawn else folders


def with_lists(
    dataset: DomainDataset,
    lists: Mapping[str, Mapping[str, str]],
    beside: Sequence[Path],
    first_label: int,
    *,
    subset: bool = False,
    tested: Tested = "all",
) -> DomainDataset:
    """The same data set with its published split, where the lists lie beside the images; as it is where they do not.

    Args:
        dataset: As read from the folders.
        lists: Domain -> "train" and "val" -> file name; names in it begin with the domain's folder.
        beside: Folders in which the lists may be.
        first_label: The label of the first class in the lists: 0 or 1.
        subset: The lists name some of the images on purpose: the others are not reported.
        tested: What a domain that was left out is tested on, by the lists.

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
            f"{dataset.name}: split lists in {str(folder)!r} are incomplete, {some(absent)} missing; "
            "complete them, or move them away for a seeded split"
        )
    domains: dict[str, Domain] = {}
    skipped = dict(dataset.skipped)
    for name, domain in dataset.domains.items():
        listed = read_lists({part: folder / file for part, file in lists[name].items()}, first_label)
        check_labels(listed.examples, len(dataset.classes), f"{dataset.name}, lists of {name}")
        there = {example.name: example.label for example in domain.examples}
        examples = []
        for example in listed.examples:
            file = example.name.partition("/")[2]
            if file not in there:
                # What the folder already explained, as an empty file, keeps its reason.
                skipped.setdefault(f"{name}/{file}", "in the published list, but not on disk")
            elif there[file] != example.label:
                raise BadFile(
                    f"{dataset.name}: {example.name} is {dataset.classes[example.label]} in the list and "
                    f"{dataset.classes[there[file]]} by its folder; the lists belong to other images"
                )
            else:
                examples.append(example._replace(name=file))
        if not examples:
            raise BadFile(
                f"{dataset.name}: none of {len(listed.examples)} images in the lists of {name} is on disk, as "
                f"{some([example.name for example in listed.examples[:2]])}; the folder has {some(sorted(there)[:2])}"
            )
        if not subset:
            unlisted = there.keys() - {example.name for example in examples}
            skipped |= {f"{name}/{file}": "on disk, but in no published list" for file in sorted(unlisted)}
        for file in listed.twice:
            skipped[f"{name}/{file.partition('/')[2]}"] = "in both published lists: trained on, but not validated with"
        domains[name] = replace(domain, examples=tuple(sorted(examples)), tested=tested)
    return replace(dataset, domains=domains, splits="the published lists", skipped=skipped)


def for_testing(dataset: DomainDataset) -> DomainDataset:
    """The same images, none of which is to be trained on."""
    domains = {
        name: replace(domain, examples=tuple(example._replace(split="test") for example in domain.examples))
        for name, domain in dataset.domains.items()
    }
    return replace(dataset, domains=domains, splits=TESTING)


def _is_split(name: str, domains: Mapping[str, Path], split: SplitFolders) -> bool:
    """Whether the domains are laid out so; refuses those that only partly are."""
    there = {d: [part for part in split.parts if find_folder(folder, [part])] for d, folder in domains.items()}
    if not any(there.values()):
        return False
    for domain, parts in there.items():
        if missing := [part for part in split.parts if part not in parts]:
            raise BadFile(
                f"{name}: domain {domain!r} ({str(domains[domain])!r}) has {some(parts)} and lacks "
                f"{', '.join(missing)}; expected the split folders {', '.join(split.parts)} in every domain, or in none"
            )
    return True


def _read_domain(
    folder: Path, split: SplitFolders | None, naming: Mapping[str, str] | None, where: str, subset: bool
) -> _Found:
    found = _Found([], {}, [])
    if split is None:
        _read_classes(folder, "", None, naming, where, subset, found)
        return found
    parts = {fold(name): part for name, part in split.parts.items()}
    copies = {fold(name) for name in split.copies}
    for entry in folders_in(folder):
        if what := parts.get(fold(entry.name)):
            _read_classes(entry, f"{entry.name}/", what, naming, where, subset, found)
        else:
            repeats = fold(entry.name) in copies
            found.skipped[entry.name] = "repeats images of the other folders" if repeats else "no part of the split"
    found.skipped.update(_strays(folder, ""))
    return found


def _read_classes(
    folder: Path,
    prefix: str,
    what: Split | None,
    naming: Mapping[str, str] | None,
    where: str,
    subset: bool,
    found: _Found,
) -> None:
    """Adds what a folder of class folders holds."""
    for entry in folders_in(folder):
        kind = entry.name if naming is None else naming.get(fold(entry.name))
        if kind is None and subset:
            continue
        if kind is None:
            known = list(dict.fromkeys((naming or {}).values()))
            raise BadFile(
                f"{where}: {str(entry)!r} is none of its {len(known)} classes; {suggestion(entry.name, known)}. Is it "
                "another data set? The set `folders` reads any classes"
            )
        found.classes.append(kind)
        for file, why in _files(entry, f"{prefix}{entry.name}"):
            if why:
                found.skipped[file] = why
            else:
                found.files.append((file, kind, what))
    found.skipped.update(_strays(folder, prefix))


def _files(folder: Path, name: str) -> Iterator[tuple[str, str | None]]:
    """Every file below a class folder, and why it is no example; without a Path each, since there may be many."""
    waiting = [(os.fspath(folder), name)]
    while waiting:
        current, before = waiting.pop()
        try:
            entries = list(os.scandir(current))
        except OSError as error:
            yield before, f"a folder that cannot be read ({error.strerror or error})"
            continue
        for entry in entries:
            file = f"{before}/{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                if is_hidden(entry.name):  # as Jupyter's copies, which would be trained on and validated with
                    yield file, "a hidden folder"
                else:
                    waiting.append((entry.path, file))
            else:
                yield file, _unusable(entry)


def _unusable(entry: "os.DirEntry[str]") -> str | None:
    if entry.name.startswith("."):
        return "a hidden file"
    try:
        if entry.is_dir():
            return "a link to a folder, which is not followed"
    except OSError:  # links in a circle
        return "a broken link"
    if os.path.splitext(entry.name)[1].lower() not in SUFFIXES:
        return f"not named like an image ({', '.join(sorted(SUFFIXES))})"
    if not entry.is_file():
        return "a broken link" if entry.is_symlink() else "not a regular file"
    try:
        return "an empty file" if entry.stat().st_size == 0 else None
    except OSError as error:
        return f"cannot be looked at ({error.strerror or error})"


def _strays(folder: Path, prefix: str) -> Iterable[tuple[str, str]]:
    return [
        (f"{prefix}{entry.name}", "not in a class folder")
        for entry in os.scandir(folder)
        if not entry.name.startswith(".") and not os.path.isdir(entry)  # which takes links in a circle, too
    ]


def _naming(classes: Sequence[str], aliases: Mapping[str, str]) -> dict[str, str]:
    """Folded name -> class; the classes first, so that messages list them in their order."""
    return {fold(kind): kind for kind in classes} | {fold(name): kind for name, kind in aliases.items()}


def _class_names(name: str, classes: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """All classes of all domains; refuses two that seem to be one, written differently in two domains."""
    union = sorted({kind for found in classes.values() for kind in found})
    written: dict[str, list[str]] = {}
    for kind in union:
        written.setdefault(unicodedata.normalize("NFC", kind).casefold(), []).append(kind)
    for kinds in written.values():
        # One domain with both means them to be two, as A and a in handwriting.
        if len(kinds) > 1 and not any(len(set(kinds) & set(found)) > 1 for found in classes.values()):
            places = [next(d for d, found in classes.items() if kind in found) for kind in kinds]
            raise BadFile(
                f"{name}: the classes {kinds[0]!r} (in {places[0]}) and {kinds[1]!r} (in {places[1]}) differ only in "
                "how they are written and would count as two; rename one"
            )
    return tuple(union)
