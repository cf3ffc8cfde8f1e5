"""Splits of a domain into training and validation images: seeded, or from published lists."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.domains import Example
from domainadaptor.lab.data.seeds import name_seed
from domainadaptor.options import check_count

VAL_SHARE = 0.1


class ListedExamples(NamedTuple):
    """Content of published split lists."""

    examples: tuple[Example, ...]
    twice: tuple[str, ...]  # listed for both training and validation; they count as training images


def seeded_split(domain: str, named: Iterable[tuple[str, int]], seed: int) -> tuple[Example, ...]:
    """Draw a tenth of each class for validation, at least one image where a class has two."""
    check_count("seed", seed, low=0)
    by_class: dict[int, list[str]] = {}
    for name, label in sorted(named):
        by_class.setdefault(label, []).append(name)
    examples = []
    for label, names in sorted(by_class.items()):
        order = np.random.default_rng([seed, label, name_seed(domain)]).permutation(len(names))
        count = min(max(1, round(VAL_SHARE * len(names))), len(names) - 1)
        val = {names[at] for at in order[:count]}
        examples += [Example(name, label, "val" if name in val else "train") for name in names]
    return tuple(sorted(examples))


def seeded_sentence(seed: int) -> str:
    """Describe `seeded_split` in words, for records."""
    return f"a tenth of each class of each domain for validation, drawn with seed {seed}"


def read_lists(lists: Mapping[str, Path], first_label: int) -> ListedExamples:
    """Read published split lists, one "path label" per line.

    Args:
        lists: "train" and "val" -> file.
        first_label: The label of the first class: 0 or 1.

    Raises:
        BadFile: A line has another form, an image has two labels, or both lists name the same images.
    """
    training = _labels(lists["train"], first_label)
    validation = _labels(lists["val"], first_label)
    twice = training.keys() & validation.keys()
    for name in twice:
        if training[name] != validation[name]:
            raise BadFile(f"{str(lists['val'])!r}: {name} has another label than in {lists['train'].name}")
    if len(twice) == len(validation) > 0:
        raise BadFile(
            f"Every image of {str(lists['val'])!r} is also in {lists['train'].name}, so they are not a split; move the "
            "lists elsewhere to use a seeded split"
        )
    examples = [Example(name, label, "train") for name, label in training.items()]
    # Validating with training images would be too optimistic; losing a few validation images is harmless.
    examples += [Example(name, label, "val") for name, label in validation.items() if name not in twice]
    return ListedExamples(tuple(sorted(examples)), tuple(sorted(twice)))


def _labels(path: Path, first_label: int) -> dict[str, int]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise BadFile(f"Cannot read the split list {str(path)!r}: {error}") from error
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
