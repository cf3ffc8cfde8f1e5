"""Splits of a domain into training and validation images: seeded, or from published lists."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.domains import Domain, DomainDataset, Example
from domainadaptor.lab.data.locate import some
from domainadaptor.lab.data.seeds import name_seed

VAL_SHARE = 0.1


def seeded_split(domain: str, named: Iterable[tuple[str, int]], seed: int) -> tuple[Example, ...]:
    """Draw a tenth of each class for validation, at least one image where a class has two."""
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


def with_lists(
    dataset: DomainDataset,
    lists: Mapping[str, Mapping[str, str]],
    folders: Sequence[Path],
    first_label: int,
    *,
    subset: bool = False,
) -> DomainDataset:
    """Return the data set with its published split if the lists exist, and as it is otherwise.

    Args:
        dataset: As read from the folders.
        lists: Domain -> "train" and "val" -> file name; paths in it begin with the domain's folder.
        folders: Folders that may contain the lists.
        first_label: The label of the first class in the lists: 0 or 1.
        subset: The lists name only some of the images on purpose: do not report the others.
    """
    wanted = {name for files in lists.values() for name in files.values()}
    folder = next((place for place in folders if any((place / name).is_file() for name in wanted)), None)
    if folder is None:
        return dataset
    if absent := sorted(name for name in wanted if not (folder / name).is_file()):
        raise BadFile(
            f"{dataset.name}: split lists in {str(folder)!r} are incomplete, {some(absent)} missing; "
            "complete them, or move them elsewhere to use a seeded split"
        )
    skipped = dict(dataset.skipped)
    domains = {}
    for name, domain in dataset.domains.items():
        train, val = (_labels(folder / lists[name][split], first_label) for split in ("train", "val"))
        if val and val.keys() <= train.keys():
            raise BadFile(
                f"Every image of {str(folder / lists[name]['val'])!r} is also in {lists[name]['train']}, so they are "
                "not a split; move the lists elsewhere to use a seeded split"
            )
        examples = _listed(dataset, domain, train, val)
        domains[name] = replace(domain, examples=examples)
        there, used = ({e.name for e in some_of} for some_of in (domain.examples, examples))
        for file in sorted((train.keys() | val.keys()) - there):
            # Files that were skipped for another reason, such as empty ones, keep that reason.
            skipped.setdefault(f"{name}/{file}", "in the published list, but not on disk")
        for file in [] if subset else sorted(there - used):
            skipped[f"{name}/{file}"] = "on disk, but in no published list"
        for file in sorted(train.keys() & val.keys()):
            skipped[f"{name}/{file}"] = "in both published lists: trained on, but not validated with"
    return replace(dataset, domains=domains, splits="the published lists", skipped=skipped)


def _listed(
    dataset: DomainDataset, domain: Domain, train: Mapping[str, int], val: Mapping[str, int]
) -> tuple[Example, ...]:
    """Return the examples of a domain by its lists; images in both are for training."""
    there = {example.name: example.label for example in domain.examples}
    listed = {**val, **train}
    for file, label in listed.items():
        if there.get(file, label) != label:
            names = dict(enumerate(dataset.classes))
            raise BadFile(
                f"{dataset.name}: {domain.name}/{file} is {names.get(label, 'of no class')} in the list and "
                f"{names[there[file]]} by its folder; the lists belong to other images"
            )
    if not listed.keys() & there.keys():
        raise BadFile(
            f"{dataset.name}: none of the {len(listed)} images in the lists of {domain.name} is on disk, such as "
            f"{some(sorted(listed)[:2])}; the folder has {some(sorted(there)[:2])}"
        )
    found = [Example(f, label, "train" if f in train else "val") for f, label in listed.items() if f in there]
    return tuple(sorted(found))


def _labels(path: Path, first_label: int) -> dict[str, int]:
    """Read "path label" lines as the path below the domain's folder -> label, counted from 0."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise BadFile(f"Cannot read the split list {str(path)!r}: {error}") from error
    labels: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        name, _, label = line.strip().rpartition(" ")
        if line.strip() and not (name and label.isdigit()):
            raise BadFile(f"{str(path)!r}, line {number}: expected 'path label', got {line[:80]!r}")
        if name:
            labels[name.partition("/")[2]] = int(label) - first_label
    return labels
