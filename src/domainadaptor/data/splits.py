"""Which images of a domain are trained on and which are kept for validation."""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from domainadaptor.data.domains import Example
from domainadaptor.errors import BadFile

VAL_SHARE = 0.1


def seeded_split(domain: str, named: Iterable[tuple[str, int]], seed: int) -> tuple[Example, ...]:
    """Keeps a tenth of each class for validation, drawn by the seed, and at least one image where there are two."""
    by_class: dict[int, list[str]] = {}
    for name, label in sorted(named):
        by_class.setdefault(label, []).append(name)
    examples = []
    for label, names in sorted(by_class.items()):
        # Not hash(), which differs from one process to the next.
        order = np.random.default_rng([seed, label, zlib.crc32(domain.encode())]).permutation(len(names))
        kept = min(max(1, round(VAL_SHARE * len(names))), len(names) - 1)
        val = {names[at] for at in order[:kept]}
        examples += [Example(name, label, "val" if name in val else "train") for name in names]
    return tuple(sorted(examples))


def seeded_sentence(seed: int) -> str:
    """What `seeded_split` does, in words for the record."""
    return f"a tenth of each class of each domain for validation, drawn with seed {seed}"


def listed_split(lists: Mapping[str, Path], first_label: int) -> tuple[Example, ...]:
    """Examples as published lists have them, one "path label" a line.

    Args:
        lists: "train" and "val" -> file.
        first_label: The label of the first class: 0 or 1.

    Raises:
        BadFile: A line is not of that form, or an image is in both lists.
    """
    examples: dict[str, Example] = {}
    for split, path in lists.items():
        for number, (name, label) in enumerate(_lines(path), start=1):
            if name in examples and examples[name].split != split:
                raise BadFile(f"{str(path)!r}, line {number}: {name} is in two lists, for training and validation")
            examples[name] = Example(name, label - first_label, "train" if split == "train" else "val")
    return tuple(sorted(examples.values()))


def check_labels(examples: Sequence[Example], classes: int, where: str) -> None:
    """Refuses labels that no class has.

    Raises:
        BadFile: There is one.
    """
    wrong = sorted({e.label for e in examples if not 0 <= e.label < classes})
    if wrong:
        raise BadFile(f"{where}: labels {wrong[:5]} belong to no class; expected {classes} classes")


def _lines(path: Path) -> Iterable[tuple[str, int]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise BadFile(f"cannot read the split list {str(path)!r}: {error}") from error
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        name, _, label = line.strip().rpartition(" ")
        if not name or not label.isdigit():
            raise BadFile(f"{str(path)!r}, line {number}: expected 'path label', got {line[:80]!r}")
        yield name, int(label)
