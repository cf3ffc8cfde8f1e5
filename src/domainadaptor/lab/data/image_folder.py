"""Data sets as folders on disk: <domain>/<class>/images, with or without a published split."""

import os
import unicodedata
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from PIL import Image

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.domains import Domain, DomainDataset, Example, Split, Tested
from domainadaptor.lab.data.images import SUFFIXES, check_image, read_image
from domainadaptor.lab.data.locate import find_folder, fold, folders_in, is_hidden, listing, some
from domainadaptor.lab.data.splits import read_lists, seeded_sentence, seeded_split
from domainadaptor.options import suggestion

_UNCOMPRESSED = frozenset([".bmp", ".pgm", ".ppm", ".tif", ".tiff"])
TEST_ONLY = "all images are for testing, none to train on"


@dataclass(frozen=True)
class FileReader:
    """Reads image files below a folder."""

    folder: Path

    def __call__(self, name: str) -> Image.Image:
        """Return the image as RGB; links are followed, since data sets are often made of them."""
        path = (self.folder / name).resolve()
        return read_image(path, path.parent)

    def check(self, name: str) -> None:
        """Check the type and the header of the file."""
        path = (self.folder / name).resolve()
        check_image(path, path.parent)

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
    tested: Tested = "all"


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

    Raises:
        BadFile: A class is unknown or has no images, a domain has no images, or a split is incomplete.
    """
    published = split if split and _is_split(name, domains, split) else None
    names = None if classes is None else {fold(kind): kind for kind in classes}
    if names is not None:
        names |= {fold(folder): kind for folder, kind in (aliases or {}).items()}
    scans = {domain: _Scan(f"{name}, domain {domain}", names, subset) for domain in domains}
    for domain, scan in scans.items():
        scan.read(domains[domain], published)
        if not scan.files:
            raise BadFile(
                f"{name}: no images in domain {domain!r} ({str(domains[domain])!r}); expected class folders with "
                f"images ({', '.join(sorted(SUFFIXES))}), found {listing(domains[domain])}"
            )
    filled = {kind for scan in scans.values() for _, kind, _ in scan.files}
    known = tuple(classes) if classes is not None else _class_names(name, scans, filled)
    if missing := [kind for kind in known if kind not in filled]:
        raise BadFile(
            f"{name}: {len(missing)} of {len(known)} classes have no image in any of {', '.join(domains)}: "
            f"{some(missing)}; found {some(sorted(filled))}"
        )
    # Published folders may separate only training images from test images.
    drawn = published is None or "val" not in published.parts.values()
    tested = published.tested if published else "all"
    built = {
        domain: Domain(
            domain, scan.examples(domain, known, seed if drawn else None), FileReader(domains[domain]), tested
        )
        for domain, scan in scans.items()
    }
    return DomainDataset(name, known, built, _split_sentence(published, drawn, seed), _skipped(scans, filled))


def with_lists(
    dataset: DomainDataset,
    lists: Mapping[str, Mapping[str, str]],
    folders: Sequence[Path],
    first_label: int,
    *,
    subset: bool = False,
    tested: Tested = "all",
) -> DomainDataset:
    """Return the data set with its published split if the lists exist, and as it is otherwise.

    Args:
        dataset: As read from the folders.
        lists: Domain -> "train" and "val" -> file name; paths in it begin with the domain's folder.
        folders: Folders that may contain the lists.
        first_label: The label of the first class in the lists: 0 or 1.
        subset: The lists name only some of the images on purpose: do not report the others.
        tested: The images to test on when a domain is held out.

    Raises:
        BadFile: Only some of the lists exist, or they do not match the images.
    """
    wanted = {name for files in lists.values() for name in files.values()}
    folder = next((place for place in folders if any((place / name).is_file() for name in wanted)), None)
    if folder is None:
        return dataset
    absent = sorted(name for name in wanted if not (folder / name).is_file())
    if absent:
        raise BadFile(
            f"{dataset.name}: split lists in {str(folder)!r} are incomplete, {some(absent)} missing; "
            "complete them, or move them elsewhere to use a seeded split"
        )
    skipped = dict(dataset.skipped)
    domains: dict[str, Domain] = {}
    for name, domain in dataset.domains.items():
        files = {split: folder / file for split, file in lists[name].items()}
        examples = _listed(dataset, domain, files, first_label, skipped, subset)
        domains[name] = replace(domain, examples=examples, tested=tested)
    return replace(dataset, domains=domains, splits="the published lists", skipped=skipped)


def for_testing(dataset: DomainDataset) -> DomainDataset:
    """Return the same images, all of them for testing."""
    domains = {
        name: replace(domain, examples=tuple(example._replace(split="test") for example in domain.examples))
        for name, domain in dataset.domains.items()
    }
    return replace(dataset, domains=domains, splits=TEST_ONLY)


@dataclass
class _Scan:
    """The content of one domain's folder."""

    where: str  # for messages
    names: Mapping[str, str] | None  # folded folder name -> class; None accepts every class
    subset: bool
    files: list[tuple[str, str, Split | None]] = field(default_factory=list)  # name, class, split if published
    skipped: dict[str, str] = field(default_factory=dict)
    classes: list[str] = field(default_factory=list)

    def read(self, folder: Path, split: SplitFolders | None) -> None:
        if split is None:
            self._read_classes(folder, "", None)
            return
        parts = {fold(name): part for name, part in split.parts.items()}
        copies = {fold(name) for name in split.copies}
        for entry in folders_in(folder):
            if part := parts.get(fold(entry.name)):
                self._read_classes(entry, f"{entry.name}/", part)
            else:
                copied = fold(entry.name) in copies
                self.skipped[entry.name] = "repeats images of the other folders" if copied else "no part of the split"
        self._skip_stray_files(folder, "")

    def examples(self, domain: str, classes: Sequence[str], seed: int | None) -> tuple[Example, ...]:
        """Return the examples; with a seed, validation images are drawn from those that may be trained on."""
        labels = {kind: label for label, kind in enumerate(classes)}
        if seed is None:
            return tuple(sorted(Example(file, labels[kind], split) for file, kind, split in self.files if split))
        named = [(file, labels[kind]) for file, kind, split in self.files if split in (None, "train")]
        fixed = [Example(file, labels[kind], split) for file, kind, split in self.files if split and split != "train"]
        return tuple(sorted([*fixed, *seeded_split(domain, named, seed)]))

    def _read_classes(self, folder: Path, prefix: str, split: Split | None) -> None:
        for entry in folders_in(folder):
            kind = entry.name if self.names is None else self.names.get(fold(entry.name))
            if kind is None and self.subset:
                continue
            if kind is None:
                known = list(dict.fromkeys((self.names or {}).values()))
                raise BadFile(
                    f"{self.where}: {str(entry)!r} is none of its {len(known)} classes; "
                    f"{suggestion(entry.name, known)}. For another data set, use `folders`, which accepts any classes"
                )
            self.classes.append(kind)
            for file, why in _files(entry, f"{prefix}{entry.name}"):
                if why:
                    self.skipped[file] = why
                else:
                    self.files.append((file, kind, split))
        self._skip_stray_files(folder, prefix)

    def _skip_stray_files(self, folder: Path, prefix: str) -> None:
        for entry in os.scandir(folder):
            if not entry.name.startswith(".") and not os.path.isdir(entry):  # which also handles circular links
                self.skipped[f"{prefix}{entry.name}"] = "not in a class folder"


def _skipped(scans: Mapping[str, _Scan], filled: set[str]) -> dict[str, str]:
    skipped = {f"{domain}/{file}": why for domain, scan in scans.items() for file, why in sorted(scan.skipped.items())}
    for domain, scan in scans.items():
        empty = dict.fromkeys(kind for kind in scan.classes if kind not in filled)
        skipped |= {f"{domain}/{kind}": "a folder without images in any domain, so no class" for kind in empty}
    return skipped


def _split_sentence(published: SplitFolders | None, drawn: bool, seed: int) -> str:
    """Describe where a split comes from, for records."""
    if published is None:
        return seeded_sentence(seed)
    folders = f"the published folders {', '.join(published.parts)}"
    return f"{folders}; of the images to train on, {seeded_sentence(seed)}" if drawn else folders


def _listed(
    dataset: DomainDataset,
    domain: Domain,
    files: Mapping[str, Path],
    first_label: int,
    skipped: dict[str, str],
    subset: bool,
) -> tuple[Example, ...]:
    """Return the examples of a domain by its lists; differences from the folder are added to `skipped`."""
    listed = read_lists(files, first_label)
    classes = dataset.classes
    if wrong := sorted({e.label for e in listed.examples if not 0 <= e.label < len(classes)}):
        raise BadFile(
            f"{dataset.name}, lists of {domain.name}: labels {wrong[:5]} belong to no class; "
            f"expected {len(classes)} classes"
        )
    there = {example.name: example.label for example in domain.examples}
    examples = []
    for example in listed.examples:
        file = example.name.partition("/")[2]
        if file not in there:
            # Files that were skipped for another reason, such as empty ones, keep that reason.
            skipped.setdefault(f"{domain.name}/{file}", "in the published list, but not on disk")
        elif there[file] != example.label:
            raise BadFile(
                f"{dataset.name}: {example.name} is {classes[example.label]} in the list and {classes[there[file]]} by "
                "its folder; the lists belong to other images"
            )
        else:
            examples.append(example._replace(name=file))
    if not examples:
        raise BadFile(
            f"{dataset.name}: none of the {len(listed.examples)} images in the lists of {domain.name} is on disk, such "
            f"as {some([example.name for example in listed.examples[:2]])}; the folder has {some(sorted(there)[:2])}"
        )
    if not subset:
        unlisted = there.keys() - {example.name for example in examples}
        skipped |= {f"{domain.name}/{file}": "on disk, but in no published list" for file in sorted(unlisted)}
    for file in listed.twice:
        why = "in both published lists: trained on, but not validated with"
        skipped[f"{domain.name}/{file.partition('/')[2]}"] = why
    return tuple(sorted(examples))


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


def _files(folder: Path, name: str) -> Iterator[tuple[str, str | None]]:
    """Yield every file below a class folder and why it is not an example; os.scandir, since there may be many."""
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
            if not entry.is_dir(follow_symlinks=False):
                yield file, _unusable(entry)
            elif is_hidden(entry.name):  # such as Jupyter's copies, which would end up in both splits
                yield file, "a hidden folder"
            else:
                waiting.append((entry.path, file))


def _unusable(entry: "os.DirEntry[str]") -> str | None:
    if entry.name.startswith("."):
        return "a hidden file"
    try:
        if entry.is_dir():
            return "a link to a folder, which is not followed"
    except OSError:  # circular links
        return "a broken link"
    if os.path.splitext(entry.name)[1].lower() not in SUFFIXES:
        return f"not named like an image ({', '.join(sorted(SUFFIXES))})"
    if not entry.is_file():
        return "a broken link" if entry.is_symlink() else "not a regular file"
    try:
        return "an empty file" if entry.stat().st_size == 0 else None
    except OSError as error:
        return f"its size cannot be read ({error.strerror or error})"


def _class_names(name: str, scans: Mapping[str, _Scan], filled: set[str]) -> tuple[str, ...]:
    """Return the classes of all domains; raise if two seem to be one that is spelled differently in two domains."""
    classes = {domain: {kind for kind in scan.classes if kind in filled} for domain, scan in scans.items()}
    union = sorted(filled)
    spelled: dict[str, list[str]] = {}
    for kind in union:
        spelled.setdefault(unicodedata.normalize("NFC", kind).casefold(), []).append(kind)
    for kinds in spelled.values():
        # If one domain has both, they are two classes, such as A and a in handwriting.
        if len(kinds) > 1 and not any(len(set(kinds) & found) > 1 for found in classes.values()):
            places = [next(d for d, found in classes.items() if kind in found) for kind in kinds]
            raise BadFile(
                f"{name}: the classes {kinds[0]!r} (in {places[0]}) and {kinds[1]!r} (in {places[1]}) differ only in "
                "spelling and would count as two; rename one"
            )
    return tuple(union)
