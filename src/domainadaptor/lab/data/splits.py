"""Which images of a domain are trained on and which are kept for validation."""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.domains import Example
from domainadaptor.options import check_count

VAL_SHARE = 0.1


class Listed(NamedTuple):
    """What published lists say."""

    examples: tuple[Example, ...]
    twice: tuple[str, ...]  # listed for training and for validation: they count as training images


def seeded_split(domain: str, named: Iterable[tuple[str, int]], seed: int) -> tuple[Example, ...]:
    """Keeps a tenth of each class for validation, drawn by the seed, and at least one image where there are two."""
    check_count("seed", seed, low=0)
    by_class: dict[int, list[str]] = {}
    for name, label in sorted(named):
        by_class.setdefault(label, []).append(name)
    # Not hash(), which differs from one process to the next; names of folders need not be valid text.
    drawn_for = zlib.crc32(domain.encode(errors="surrogateescape"))
    examples = []
    for label, names in sorted(by_class.items()):
        order = np.random.default_rng([seed, label, drawn_for]).permutation(len(names))
        kept = min(max(1, round(VAL_SHARE * len(names))), len(names) - 1)
        val = {names[at] for at in order[:kept]}
        examples += [Example(name, label, "val" if name in val else "train") for name in names]
    return tuple(sorted(examples))


def seeded_sentence(seed: int) -> str:
    """What `seeded_split` does, in words for the record."""
    return f"a tenth of each class of each domain for validation, drawn with seed {seed}"


def read_lists(lists: Mapping[str, Path], first_label: int) -> Listed:
    """Examples as published lists have them, one "path label" a line.

    Args:
        lists: "train" and "val" -> file.
        first_label: The label of the first class: 0 or 1.

    Raises:
        BadFile: A line is not of that form, an image has two labels, or the lists are one list under two names.
    """
    training = _labels(lists["train"], first_label)
    validation = _labels(lists["val"], first_label)
    twice = training.keys() & validation.keys()
    for name in twice:
        if training[name] != validation[name]:
            raise BadFile(f"{str(lists['val'])!r}: {name} has another label than in {lists['train'].name}")
    if len(twice) == len(validation) > 0:
        raise BadFile(
            f"every image of {str(lists['val'])!r} is in {lists['train'].name} too, which is no split; move the lists "
            "away for a seeded one"
        )
    examples = [Example(name, label, "train") for name, label in training.items()]
    # Trained on and validated with would flatter; trained on alone only loses a validation image.
    examples += [Example(name, label, "val") for name, label in validation.items() if name not in twice]
    return Listed(tuple(sorted(examples)), tuple(sorted(twice)))


def check_labels(examples: Sequence[Example], classes: int, where: str) -> None:
    """Refuses labels that no class has.

    Raises:
        BadFile: There is one.
    """
    wrong = sorted({e.label for e in examples if not 0 <= e.label < classes})
    if wrong:
        raise BadFile(f"{where}: labels {wrong[:5]} belong to no class; expected {classes} classes")


def _labels(path: Path, first_label: int) -> dict[str, int]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise BadFile(f"cannot read the split list {str(path)!r}: {error}") from error
    labels: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        name, _, label = line.strip().rpartition(" ")
        if not name or not label.isdigit():
            raise BadFile(f"{str(path)!r}, line {number}: expected 'path label', got {line[:80]!r}")
        if labels.setdefault(name, int(label) - first_label) != int(label) - first_label:
            raise BadFile(f"{str(path)!r}, line {number}: {name} has another label in an earlier line")
    return labels
