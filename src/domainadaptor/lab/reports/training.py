"""Training runs as tables and a figure: accuracy in-domain and on the held-out domain."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from domainadaptor.lab.records.training import TrainingRecord
from domainadaptor.lab.reports.figures import COLORS, GREY, legend_right, panels
from domainadaptor.lab.reports.numbers import estimate, number, with_deviation
from domainadaptor.lab.reports.tables import MEAN, PrintedTable, TableLine

FIGURE, CAPTION = "training", "Accuracy in-domain (source validation) and on the held-out domain."
_VALIDATION = "source validation"
_NOT_THE_RECIPE = {"seed", "sources", "data", "weights", "start"}


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
        found: dict[int, list[TrainingRecord]] = {}
        for record in sorted(self.records, key=lambda record: record.recipe.seed):
            found.setdefault(record.recipe.seed, []).append(record)
        return found

    def validation(self) -> list[float]:
        """Return the mean validation accuracy over held-out domains, one per seed."""
        return [statistics.mean(r.source_validation.accuracy for r in own) for own in self.seeds().values()]

    def targets(self) -> dict[str, list[float]]:
        """Return the accuracies on each held-out domain, one per seed."""
        found: dict[str, list[float]] = {}
        for record in self.records:
            for target, accuracy in record.target_accuracy.items():
                found.setdefault(target, []).append(accuracy)
        return dict(sorted(found.items()))

    def minutes(self) -> float:
        """Return the mean duration of a run: all epochs at the pace of the fastest."""
        return statistics.mean(len(r.epochs) * min(epoch.seconds for epoch in r.epochs) for r in self.records) / 60


@dataclass(frozen=True)
class TrainingTable:
    """All recipes for one network on one data set."""

    setting: str
    printed: PrintedTable
    commands: tuple[str, ...]
    notes: tuple[str, ...]


def training_rows(records: Sequence[TrainingRecord]) -> list[TrainingRow]:
    """Return one row per recipe, in order of appearance; ERM, the baseline, comes first."""
    known = {record.name: record for record in records}
    grouped: dict[tuple[str, str, str], list[TrainingRecord]] = {}
    for record in sorted(records, key=lambda record: record.name):
        title = _title(record, known.get(record.recipe.weights))
        grouped.setdefault((_setting(record), title, _settings(record)), []).append(record)

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
    return [
        _table(setting, [row for row in rows if row.setting == setting])
        for setting in dict.fromkeys(row.setting for row in rows)
    ]


def draw_training(rows: Sequence[TrainingRow]) -> Any:
    """Draw one panel per setting, one group of bars per domain, one bar per recipe."""
    settings = list(dict.fromkeys(row.setting for row in rows))
    figure, shown = panels(len(settings), 1, 10, 3.8)
    for panel, setting in zip(shown, settings, strict=True):
        _bars(panel, setting, [row for row in rows if row.setting == setting])
    return figure


def _table(setting: str, rows: Sequence[TrainingRow]) -> TrainingTable:
    targets = list(dict.fromkeys(target for row in rows for target in row.targets()))
    lines = []
    for row in rows:
        own = row.targets()
        whole = (
            number(statistics.fmean(map(statistics.fmean, own.values()))) if own and set(own) == set(targets) else ""
        )
        cells = [with_deviation(estimate(own.get(target, []))) for target in targets]
        texts = (
            str(len(row.seeds())),
            with_deviation(estimate(row.validation())),
            *cells,
            whole,
            number(row.minutes()),
        )
        lines.append(TableLine(row.recipe, texts))
    columns = ("seeds", _VALIDATION, *targets, MEAN, "minutes per run")
    remarks = dict.fromkeys(record.note for row in rows for record in row.records if record.note)
    return TrainingTable(
        setting,
        PrintedTable("trained with", columns, tuple(lines)),
        tuple(dict.fromkeys(record.command for row in rows for record in row.records)),
        (*_start_notes(rows), *(f"{note[0].upper()}{note[1:]}." for note in remarks)),
    )


def _start_notes(rows: Sequence[TrainingRow]) -> list[str]:
    """Return what the networks that others start from reached, seed by seed, so that gains can be read per seed."""
    if not any(row.continued for row in rows):
        return []
    notes = [
        "Rows with additional epochs (6 + 2: two more after six) start from the network of the same target and seed; "
        "their minutes are additional."
    ]
    for row in rows:
        for seed, records in row.seeds().items() if row.start and len(row.seeds()) > 1 else ():
            each = ", ".join(f"{name} {number(value)}" for name, value in _by_column(records).items())
            notes.append(f"{row.recipe}, seed {seed}: {each}.")
    return notes


def _by_column(records: Sequence[TrainingRecord]) -> Mapping[str, float]:
    validation = statistics.mean(record.source_validation.accuracy for record in records)
    targets = dict(sorted((t, value) for record in records for t, value in record.target_accuracy.items()))
    mean = {MEAN: statistics.fmean(targets.values())} if targets else {}  # a network of all domains has no target
    return {_VALIDATION: validation, **targets, **mean}


def _bars(panel: Any, setting: str, rows: Sequence[TrainingRow]) -> None:
    targets = list(dict.fromkeys(target for row in rows for target in row.targets()))
    width = 0.8 / len(rows)
    for at, row in enumerate(rows):
        places = [group + (at - (len(rows) - 1) / 2) * width for group in range(len(targets) + 1)]
        own = row.targets()
        groups = [estimate(values) for values in (row.validation(), *(own.get(target, []) for target in targets))]
        means = [found.mean if found else 0.0 for found in groups]
        spreads = [found.deviation or 0.0 if found else 0.0 for found in groups]
        bars = panel.bar(places, means, width * 0.92, yerr=spreads if any(spreads) else None, label=row.recipe,
                         color=COLORS[at % len(COLORS)], hatch="" if at < len(COLORS) else "//", ecolor="#444444",
                         capsize=2)  # fmt: skip
        if len(rows) <= 3:
            panel.bar_label(bars, [f"{mean:.0f}" if mean else "" for mean in means], fontsize=10, padding=2)
    panel.axvline(0.5, color=GREY, linewidth=1, linestyle=":")
    panel.set_xticks(range(len(targets) + 1), ["source\nvalidation", *(f"{t}\n(held out)" for t in targets)])
    panel.set_ylim(0, 108)
    panel.set_yticks([0, 25, 50, 75, 100])
    panel.set_ylabel("accuracy, %")
    panel.set_title(setting, loc="left")
    panel.grid(axis="x", visible=False)
    if len(rows) > 1:
        legend_right(panel)


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


def _settings(record: TrainingRecord) -> str:
    """Return everything that distinguishes recipes."""
    return record.recipe.model_dump_json(exclude=_NOT_THE_RECIPE) + str(_has_few_sources(record))


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
