"""Data sets as folders on disk: <domain>/<class>/images, with or without a published split."""

import os
import stat
import unicodedata
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.domains import Domain, DomainDataset, Example, Reader, Split
from domainadaptor.lab.data.images import SUFFIXES, read_image
from domainadaptor.lab.data.locate import find_folder, fold, folders_in, is_hidden, listing, some
from domainadaptor.lab.data.splits import seeded_sentence, seeded_split
from domainadaptor.options import suggestion

_UNCOMPRESSED = frozenset([".bmp", ".pgm", ".ppm", ".tif", ".tiff"])
TEST_ONLY = "all images are for testing, none to train on"


@dataclass(frozen=True)
class FileReader(Reader):
    """Reads image files below a folder."""

    folder: Path

    def __call__(self, name: str) -> Image.Image:
        """Return the image as RGB; links are followed, since data sets are often made of them."""
        path = Path(os.path.realpath(self.folder / name))
        return read_image(path, path.parent)

    def stamp(self, name: str) -> str:
        """Return size and modification time."""
        try:
            status = os.stat(self.folder / name)
        except OSError:  # removed since it was listed: reading it fails with a message
            return "gone"
        return f"{status.st_size}-{status.st_mtime_ns}"

    def mark(self, name: str) -> str:
        """Return the file size, and a checksum for formats in which images of one shape have the same size."""
        size = self.stamp(name).partition("-")[0]
        if Path(name).suffix.lower() not in _UNCOMPRESSED:
            return size
        try:
            return f"{size}-{zlib.crc32((self.folder / name).read_bytes()):08x}"
        except OSError:
            return size


@dataclass(frozen=True)
class SplitFolders:
    """A published split as folders between a domain and its classes."""

    parts: Mapping[str, Split]  # folder -> split
    copies: tuple[str, ...] = ()  # folders that only repeat images of the others


def read_image_folders(
    name: str,
    domains: Mapping[str, Path],
    seed: int,
    classes: Sequence[str] | None = None,
    *,
    aliases: Mapping[str, str] | None = None,
    split: SplitFolders | None = None,
    subset: bool = False,
) -> DomainDataset:
    """Read domains as folders of class folders, with the split of the folders, or a seeded one.

    Args:
        name: Name of the data set.
        domains: Domain -> its folder.
        seed: Seed of the split where none is published.
        classes: The expected classes; None takes those that exist.
        aliases: Folder name -> class, for layouts with other names.
        split: How a published split would be laid out.
        subset: Ignore folders of other classes, because the data set uses only some of them.
    """
    published = split if split and _is_split(name, domains, split) else None
    spelled = {fold(kind): kind for kind in classes or ()} | {fold(k): kind for k, kind in (aliases or {}).items()}

    def class_of(folder: Path) -> str | None:
        kind = folder.name if classes is None else spelled.get(fold(folder.name))
        if kind is None and not subset:
            known = list(classes or ())
            raise BadFile(
                f"{name}: {str(folder)!r} is none of its {len(known)} classes; {suggestion(folder.name, known)}. "
                "For another data set, use `folders`, which accepts any classes"
            )
        return kind

    scans = {domain: _scan(folder, published, class_of) for domain, folder in domains.items()}
    if empty := [domain for domain, scan in scans.items() if not scan.files]:
        raise BadFile(
            f"{name}: no images in domain {empty[0]!r} ({str(domains[empty[0]])!r}); expected class folders with "
            f"images ({', '.join(sorted(SUFFIXES))}), found {listing(domains[empty[0]])}"
        )
    filled = {file.kind for scan in scans.values() for file in scan.files}
    known = tuple(classes) if classes is not None else _class_names(name, scans)
    if missing := [kind for kind in known if kind not in filled]:
        raise BadFile(
            f"{name}: {len(missing)} of {len(known)} classes have no image in any of {', '.join(domains)}: "
            f"{some(missing)}; found {some(sorted(filled))}"
        )
    # Published folders may separate only training images from test images.
    drawn = published is None or "val" not in published.parts.values()
    built: dict[str, Domain] = {}
    skipped: dict[str, str] = {}
    for domain, scan in scans.items():
        examples = _examples(domain, scan.files, known, seed if drawn else None)
        built[domain] = Domain(domain, examples, FileReader(domains[domain]))
        skipped |= {f"{domain}/{file}": why for file, why in sorted(scan.skipped.items())}
        unused = [kind for kind in scan.kinds if kind not in filled]
        skipped |= {f"{domain}/{kind}": "a folder without images in any domain, so no class" for kind in unused}
    return DomainDataset(name, known, built, _split_sentence(published, drawn, seed), skipped)


def for_testing(dataset: DomainDataset) -> DomainDataset:
    """Return the same images, all of them for testing."""
    domains = {
        name: replace(domain, examples=tuple(example._replace(split="test") for example in domain.examples))
        for name, domain in dataset.domains.items()
    }
    return replace(dataset, domains=domains, splits=TEST_ONLY)


class _File(NamedTuple):
    name: str
    kind: str  # class
    split: Split | None  # if one is published


class _Scan(NamedTuple):
    """The content of one domain's folder."""

    files: list[_File]
    skipped: dict[str, str]  # file -> why it is not an example
    kinds: list[str]  # classes that have a folder


def _scan(folder: Path, split: SplitFolders | None, class_of: Callable[[Path], str | None]) -> _Scan:
    scan = _Scan([], {}, [])
    places: list[tuple[Path, str, Split | None]] = [(folder, "", None)]  # with class folders; prefix of names; split
    if split is not None:
        parts = {fold(name): part for name, part in split.parts.items()}
        places = [(e, f"{e.name}/", parts[fold(e.name)]) for e in folders_in(folder) if fold(e.name) in parts]
        for entry in folders_in(folder):
            if fold(entry.name) not in parts:
                copied = fold(entry.name) in split.copies
                scan.skipped[entry.name] = "repeats images of the other folders" if copied else "no part of the split"
        scan.skipped.update(_stray_files(folder, ""))
    for place, prefix, part in places:
        for entry in folders_in(place):
            if (kind := class_of(entry)) is None:
                continue
            scan.kinds.append(kind)
            for file, why in _files(entry, f"{prefix}{entry.name}"):
                if why:
                    scan.skipped[file] = why
                else:
                    scan.files.append(_File(file, kind, part))
        scan.skipped.update(_stray_files(place, prefix))
    return scan


def _examples(domain: str, files: Sequence[_File], classes: Sequence[str], seed: int | None) -> tuple[Example, ...]:
    """Return the examples; with a seed, validation images are drawn from those that may be trained on."""
    labels = {kind: label for label, kind in enumerate(classes)}
    free = [] if seed is None else [file for file in files if file.split in (None, "train")]
    fixed = [
        Example(f.name, labels[f.kind], f.split) for f in files if f.split and (seed is None or f.split != "train")
    ]
    return tuple(sorted([*fixed, *seeded_split(domain, [(f.name, labels[f.kind]) for f in free], seed or 0)]))


def _split_sentence(published: SplitFolders | None, drawn: bool, seed: int) -> str:
    """Describe where a split comes from, for records."""
    if published is None:
        return seeded_sentence(seed)
    folders = f"the published folders {', '.join(published.parts)}"
    return f"{folders}; of the images to train on, {seeded_sentence(seed)}" if drawn else folders


def _is_split(name: str, domains: Mapping[str, Path], split: SplitFolders) -> bool:
    """Return whether the domains have split folders; raise if only some of the folders exist."""
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


def _stray_files(folder: Path, prefix: str) -> Iterator[tuple[str, str]]:
    for entry in os.scandir(folder):
        if not entry.name.startswith(".") and not os.path.isdir(entry):  # which also handles circular links
            yield f"{prefix}{entry.name}", "not in a class folder"


def _files(folder: Path, name: str) -> Iterator[tuple[str, str]]:
    """Yield every file below a class folder, and why it is not an example ("" if it is one)."""
    unlisted: list[OSError] = []
    for place, inside, files in os.walk(folder, onerror=unlisted.append):
        before = f"{name}/{Path(place).relative_to(folder).as_posix()}/".replace("/./", "/")
        for entry in inside:
            if os.path.islink(os.path.join(place, entry)):
                yield before + entry, "a link to a folder, which is not followed"
            elif is_hidden(entry):  # such as Jupyter's copies, which would end up in both splits
                yield before + entry, "a hidden folder"
        inside[:] = [entry for entry in inside if not is_hidden(entry)]
        for entry in files:
            yield before + entry, _problem(place, entry)
    for error in unlisted:
        where = Path(error.filename).relative_to(folder)
        yield (Path(name) / where).as_posix(), f"a folder that cannot be read ({error.strerror or error})"


def _problem(place: str, name: str) -> str:
    if name.startswith("."):
        return "a hidden file"
    if os.path.splitext(name)[1].lower() not in SUFFIXES:
        return f"not named like an image ({', '.join(sorted(SUFFIXES))})"
    try:
        status = os.stat(os.path.join(place, name))
    except OSError:
        return "a broken link"
    if not stat.S_ISREG(status.st_mode):
        return "not a regular file"
    return "" if status.st_size else "an empty file"


def _class_names(name: str, scans: Mapping[str, _Scan]) -> tuple[str, ...]:
    """Return the classes of all domains; raise if two seem to be one that is spelled differently in two domains."""
    classes = {domain: {file.kind for file in scan.files} for domain, scan in scans.items()}
    spelled: dict[str, list[str]] = {}
    for kind in sorted(set().union(*classes.values())):
        spelled.setdefault(unicodedata.normalize("NFC", kind).casefold(), []).append(kind)
    for kinds in spelled.values():
        # If one domain has both, they are two classes, such as A and a in handwriting.
        if len(kinds) > 1 and not any(len(found.intersection(kinds)) > 1 for found in classes.values()):
            places = [next(d for d, found in classes.items() if kind in found) for kind in kinds]
            raise BadFile(
                f"{name}: the classes {kinds[0]!r} (in {places[0]}) and {kinds[1]!r} (in {places[1]}) differ only in "
                "spelling and would count as two; rename one"
            )
    return tuple(sorted(kind for kinds in spelled.values() for kind in kinds))
