"""Training runs as tables: accuracy in-domain and on the held-out domain."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean, mean

from domainadaptor.lab.records.training import TrainingRecord
from domainadaptor.lab.reports.numbers import estimate, number, with_deviation
from domainadaptor.lab.reports.tables import MEAN, PrintedTable, TableLine

_VALIDATION = "source validation"
_NOT_THE_RECIPE = {"seed", "sources", "data", "weights", "start"}
_STARTS = (
    "Rows with additional epochs (6 + 2: two more after six) start from the network of the same target and seed; "
    "their minutes are additional."
)


@dataclass(frozen=True)
class TrainingRow:
    """One recipe, over all held-out domains and seeds."""

    setting: str  # data set, network and size
    recipe: str
    records: tuple[TrainingRecord, ...]
    continued: bool = False  # it starts from networks of another row
    start: bool = False  # others start from its networks

    def seeds(self) -> dict[int, list[TrainingRecord]]:
        """Return its records by seed."""
        by_seed = sorted(self.records, key=_seed)
        return {seed: list(own) for seed, own in groupby(by_seed, _seed)}

    def validation(self) -> list[float]:
        """Return the mean validation accuracy over held-out domains, one per seed."""
        return [mean(r.source_validation.accuracy for r in own) for own in self.seeds().values()]

    def targets(self) -> dict[str, list[float]]:
        """Return the accuracies on each held-out domain, one per seed."""
        found: dict[str, list[float]] = {}
        for target, accuracy in (pair for record in self.records for pair in record.target_accuracy.items()):
            found.setdefault(target, []).append(accuracy)
        return dict(sorted(found.items()))

    def minutes(self) -> float:
        """Return the mean duration of a run: all epochs at the pace of the fastest."""
        return mean(len(r.epochs) * min(epoch.seconds for epoch in r.epochs) for r in self.records) / 60


@dataclass(frozen=True)
class TrainingTable:
    """All recipes for one network on one data set."""

    setting: str
    printed: PrintedTable
    commands: Sequence[str]
    notes: Sequence[str]


def training_rows(records: Sequence[TrainingRecord]) -> list[TrainingRow]:
    """Return one row per recipe, in order of appearance; ERM, the baseline, comes first."""
    known = {record.name: record for record in records}
    grouped: dict[tuple[str, str, str], list[TrainingRecord]] = {}
    for record in sorted(records, key=lambda record: record.name):
        title = _title(record, known.get(record.recipe.weights))
        different = record.recipe.model_dump_json(exclude=_NOT_THE_RECIPE) + str(_has_few_sources(record))
        grouped.setdefault((_setting(record), title, different), []).append(record)

    def order(entry: tuple[tuple[str, str, str], list[TrainingRecord]]) -> tuple[bool, bool, int]:
        (_, title, _), (first, *_) = entry
        return title != "ERM", _continues(first), -first.recipe.epochs if title == "ERM" else 0

    starts = {record.recipe.weights for record in records if _continues(record)}
    rows = []
    for (setting, title, _), found in sorted(grouped.items(), key=order):
        alike = [own[0] for (s, t, _), own in grouped.items() if (s, t) == (setting, title)]
        full = f"{title}{_difference(found[0], alike)}" if len(alike) > 1 else title
        is_start = any(record.name in starts for record in found)
        rows.append(TrainingRow(setting, full, tuple(found), _continues(found[0]), is_start))
    return rows


def training_tables(rows: Sequence[TrainingRow]) -> list[TrainingTable]:
    """Return a table for each network and data set."""
    return [_table(setting, own) for setting, own in _by_setting(rows).items()]


def _by_setting(rows: Sequence[TrainingRow]) -> dict[str, list[TrainingRow]]:
    found: dict[str, list[TrainingRow]] = {}
    for row in rows:
        found.setdefault(row.setting, []).append(row)
    return found


def _table(setting: str, rows: Sequence[TrainingRow]) -> TrainingTable:
    targets = _targets(rows)
    lines = []
    for row in rows:
        own = row.targets()
        complete = own and set(own) == set(targets)
        columns = [row.validation(), *(own.get(target, []) for target in targets)]
        texts = [with_deviation(estimate(values)) for values in columns]
        whole = number(fmean(map(fmean, own.values()))) if complete else ""
        lines.append(TableLine(row.recipe, (str(len(row.seeds())), *texts, whole, number(row.minutes()))))
    records = [record for row in rows for record in row.records]
    remarks = [f"{note[0].upper()}{note[1:]}." for note in dict.fromkeys(record.note for record in records) if note]
    return TrainingTable(
        setting,
        PrintedTable("trained with", ("seeds", _VALIDATION, *targets, MEAN, "minutes per run"), lines),
        list(dict.fromkeys(record.command for record in records)),
        [*_start_notes(rows), *remarks],
    )


def _start_notes(rows: Sequence[TrainingRow]) -> list[str]:
    """Return what the networks that others start from reached, seed by seed, so that gains can be read per seed."""
    if not any(row.continued for row in rows):
        return []
    notes = [_STARTS]
    for row in rows:
        for seed, records in row.seeds().items() if row.start and len(row.seeds()) > 1 else ():
            found = {_VALIDATION: mean(record.source_validation.accuracy for record in records)}
            targets = dict(sorted(pair for record in records for pair in record.target_accuracy.items()))
            found |= targets | ({MEAN: fmean(targets.values())} if targets else {})  # none if trained on all domains
            each = ", ".join(f"{name} {number(value)}" for name, value in found.items())
            notes.append(f"{row.recipe}, seed {seed}: {each}.")
    return notes


def _targets(rows: Sequence[TrainingRow]) -> list[str]:
    return list(dict.fromkeys(target for row in rows for target in row.targets()))


def _seed(record: TrainingRecord) -> int:
    return record.recipe.seed


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
