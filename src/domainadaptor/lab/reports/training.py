"""Training runs as tables: accuracy in-domain and on the held-out domain."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean

from domainadaptor.lab.records.training import TrainingRecord
from domainadaptor.lab.reports.numbers import estimate, number, with_deviation
from domainadaptor.lab.reports.tables import MEAN, PrintedTable, TableLine

_NOT_THE_RECIPE = {"seed", "sources", "data", "weights", "start"}
_STARTS = (
    "Rows with additional epochs (6 + 2: two more after six) start from the network of the same target and seed; "
    "their minutes are additional."
)


@dataclass(frozen=True)
class TrainingTable:
    """All recipes for one network on one data set."""

    setting: str
    printed: PrintedTable
    commands: Sequence[str]
    notes: Sequence[str]


def training_tables(records: Sequence[TrainingRecord]) -> list[TrainingTable]:
    """Return a table for each network and data set, with a row per recipe; ERM, the baseline, comes first."""
    known = {record.name: record for record in records}
    recipes: dict[tuple[str, str, str], list[TrainingRecord]] = {}
    for record in sorted(records, key=lambda record: record.name):
        title = _title(record, known.get(record.recipe.weights))
        different = record.recipe.model_dump_json(exclude=_NOT_THE_RECIPE) + str(_has_few_sources(record))
        recipes.setdefault((_setting(record), title, different), []).append(record)

    def order(entry: tuple[tuple[str, str, str], list[TrainingRecord]]) -> tuple[bool, bool, int]:
        (_, title, _), (first, *_) = entry
        return title != "ERM", _continues(first), -first.recipe.epochs if title == "ERM" else 0

    tables: dict[str, list[tuple[str, list[TrainingRecord]]]] = {}
    for (setting, title, _), found in sorted(recipes.items(), key=order):
        alike = [own[0] for (s, t, _), own in recipes.items() if (s, t) == (setting, title)]
        label = f"{title}{_difference(found[0], alike)}" if len(alike) > 1 else title
        tables.setdefault(setting, []).append((label, found))
    return [_table(setting, rows) for setting, rows in tables.items()]


def _table(setting: str, rows: Sequence[tuple[str, list[TrainingRecord]]]) -> TrainingTable:
    records = [record for _, own in rows for record in own]
    accuracies = [_accuracies(own) for _, own in rows]
    targets = list(dict.fromkeys(target for own in accuracies for target in own))
    lines = []
    for (label, found), own in zip(rows, accuracies, strict=True):
        seeds = [[r.source_validation.accuracy for r in of_seed] for of_seed in _by_seed(found)]
        columns = [[fmean(seed) for seed in seeds], *(own.get(target, []) for target in targets)]
        whole = number(fmean(map(fmean, own.values()))) if own and set(own) == set(targets) else ""
        minutes = fmean(len(r.epochs) * min(epoch.seconds for epoch in r.epochs) for r in found) / 60
        texts = (str(len(seeds)), *(with_deviation(estimate(values)) for values in columns), whole, number(minutes))
        lines.append(TableLine(label, texts))
    notes = [f"{note[0].upper()}{note[1:]}." for note in dict.fromkeys(record.note for record in records) if note]
    return TrainingTable(
        setting,
        PrintedTable("trained with", ("seeds", "source validation", *targets, MEAN, "minutes per run"), lines),
        list(dict.fromkeys(record.command for record in records)),
        [*([_STARTS] if any(map(_continues, records)) else []), *notes],
    )


def _by_seed(records: Sequence[TrainingRecord]) -> Iterator[list[TrainingRecord]]:
    ordered = sorted(records, key=lambda record: record.recipe.seed)
    return (list(own) for _, own in groupby(ordered, lambda record: record.recipe.seed))


def _accuracies(records: Sequence[TrainingRecord]) -> dict[str, list[float]]:
    """Return the accuracies on each held-out domain, one per seed."""
    found: dict[str, list[float]] = {}
    for target, accuracy in (pair for record in records for pair in record.target_accuracy.items()):
        found.setdefault(target, []).append(accuracy)
    return dict(sorted(found.items()))


def _setting(record: TrainingRecord) -> str:
    recipe = record.recipe
    return f"{recipe.dataset}, {recipe.network.rpartition(':')[2]} at {recipe.size}x{recipe.size}"


def _title(record: TrainingRecord, start: TrainingRecord | None) -> str:
    """Name a recipe, with the epochs of its start where they are known."""
    recipe = record.recipe
    tasks = recipe.options.get("tasks")
    title = recipe.algorithm.upper() + "".join(f" + {task}" for task in (tasks if isinstance(tasks, list) else ()))
    title += ", SWAD" if recipe.select == "swad" else ""
    title += ", IABN" if recipe.norm == "iabn" else ""
    title += f", {' + '.join(recipe.sources)} alone" if _has_few_sources(record) else ""
    if not _continues(record):
        return title
    return f"{title}, {f'{start.recipe.epochs} + {recipe.epochs}' if start else f'{recipe.epochs} more'} epochs"


def _continues(record: TrainingRecord) -> bool:
    """Return whether it starts from another run, whose name begins with data set and network."""
    recipe = record.recipe
    return recipe.weights.startswith(f"{recipe.dataset}-{recipe.network.rpartition(':')[2]}-")


def _has_few_sources(record: TrainingRecord) -> bool:
    return len(record.recipe.sources) < len(record.images) - 1


def _difference(record: TrainingRecord, others: Sequence[TrainingRecord]) -> str:
    """Return the settings in which a recipe differs from others of the same title; epochs alone if they suffice."""
    epochs = [other.recipe.epochs for other in others]
    if len(set(epochs)) == len(epochs):
        return f", {record.recipe.epochs} epochs"
    own, *rest = (r.recipe.model_dump(exclude=_NOT_THE_RECIPE) for r in (record, *others))
    words: list[str] = []
    for name, value in own.items():
        if any(other[name] != value for other in rest):
            words += [f"{k} {v}" for k, v in value.items()] if isinstance(value, dict) else [f"{name} {value}"]
    return f" ({', '.join(words) or 'other options'})"
