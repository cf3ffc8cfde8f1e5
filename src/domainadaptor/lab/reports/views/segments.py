"""Accuracy along the segments of a protocol, in the order in which a method meets them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from domainadaptor.lab.records.runs import EvaluationRecord, Score, SegmentScore
from domainadaptor.lab.reports.details import details_table
from domainadaptor.lab.reports.figures import GREY, ReportFigure, legend_right, look, panels, tall_enough, wrapped
from domainadaptor.lab.reports.numbers import Estimate, estimate, with_deviation
from domainadaptor.lab.reports.selection import TableRecords
from domainadaptor.lab.reports.tables import PrintedTable, ResultNumber, TableLine, embolden
from domainadaptor.lab.reports.views import View

__all__ = ["segments"]

_LONG = 30  # segments, from which on error bars would hide the lines


@dataclass(frozen=True)
class _Path:
    """A method on its way through the segments."""

    label: str
    group: str
    names: list[str]
    values: list[Estimate | None]  # per segment, then over all of them
    resets: frozenset[int]  # segments before which the adaptor was reset
    reference: bool  # the source model

    def padded(self, segments: int) -> list[Estimate | None]:
        """Return the values with None for segments that it does not have."""
        return [*self.values[:-1], *[None] * (segments - len(self.names)), self.values[-1]]


def segments(table: TableRecords[EvaluationRecord]) -> View:
    """Show a table and a line plot per column: methods by segments."""
    plan = table.layout
    printed, figures, numbers = [], [], []
    for at, column in enumerate(plan.columns):
        paths = _paths(table, column)
        if not paths:
            continue
        names = max((path.names for path in paths), key=len)
        values = [path.padded(len(names)) for path in paths]
        lines = [TableLine(p.label, tuple(map(with_deviation, v)), p.group) for p, v in zip(paths, values, strict=True)]
        for place in range(len(names) + 1):
            lines = embolden(lines, place, [found.mean if (found := line[place]) else None for line in values])
        caption = f"{column}: accuracy in percent by segment." if len(plan.columns) > 1 else ""
        printed.append(PrintedTable(plan.corner, (*names, "all"), tuple(lines), caption))
        numbers += [result for path in paths for result in _numbers(path, column)]
        resets = " Dotted lines: the adaptor was reset." if any(path.resets for path in paths) else ""
        title = f"{plan.title}: accuracy by segment, {column}; grey is the source model.{resets}"
        figures.append(ReportFigure(table.name if at == 0 else f"{table.name}-{at + 1}", title, partial(_draw, paths)))
    return View(tuple(printed), details_table(table), tuple(figures), tuple(numbers))


def _paths(table: TableRecords[EvaluationRecord], column: str) -> list[_Path]:
    paths: list[_Path] = []
    source: _Path | None = None
    for row in table.layout.rows:
        records = [record for record in table.cell(row, column).records if record.segments]
        runs = [_parts(record) for record in records]
        if not runs or len({len(run) for run in runs}) > 1:
            continue
        names = [name for name, _ in runs[0]]
        first = [part for _, part in runs[0]]
        resets = frozenset(at for at, part in enumerate(first) if at and getattr(part, "fresh", False))
        is_source = all(record.run.method == "source" for record in table.of_row(row))
        paths.append(_Path(row.label, row.group, names, _values(runs, "right"), resets, is_source))
        source = source or _Path("source model", "", names, _values(runs, "source_right"), resets, True)
    return paths if source is None or any(path.reference for path in paths) else [source, *paths]


def _parts(record: EvaluationRecord) -> list[tuple[str, SegmentScore | Score]]:
    """Return its segments, or its domains where one segment holds several."""
    if len(record.segments) > 1 or len(record.scores) == 1:
        return [(segment.name, segment) for segment in record.segments]
    return list(record.scores.items())


def _values(runs: Sequence[Sequence[tuple[str, SegmentScore | Score]]], count: str) -> list[Estimate | None]:
    """Return accuracies over records, segment by segment and over all."""
    counts = [[(getattr(part, count), part.images) for _, part in run] for run in runs]
    columns = [*zip(*counts, strict=True), [tuple(map(sum, zip(*run, strict=True))) for run in counts]]
    return [estimate([100 * right / images for right, images in column if images]) for column in columns]


def _numbers(path: _Path, column: str) -> list[ResultNumber]:
    titles = [*(f"{column}: {at} {name}" for at, name in enumerate(path.names, 1)), f"{column}: all"]
    return [
        ResultNumber(path.group, path.label, title, "accuracy, %", found.mean, found.deviation, found.seeds)
        for title, found in zip(titles, path.values, strict=True)
        if found
    ]


def _draw(paths: Sequence[_Path]) -> Any:
    names = max((path.names for path in paths), key=len)
    labels = [wrapped(path.label, 26) for path in paths]
    figure, (panel,) = panels(1, 1, 10.5, tall_enough(4.6, labels))
    long = len(names) > _LONG
    for reset in sorted({at for path in paths for at in path.resets}) if not long else []:
        panel.axvline(reset - 0.5, color=GREY, linestyle=":", linewidth=1)
    looks = iter(range(len(paths)))
    for path, label in zip(paths, labels, strict=True):
        style = {"color": GREY, "marker": "" if len(names) > 1 else "_"} if path.reference else look(next(looks))
        known = [(at, value) for at, value in enumerate(path.values[:-1]) if value]
        spread = [value.deviation or 0 for _, value in known] if any(v.deviation for _, v in known) else None
        x, y = [at for at, _ in known], [value.mean for _, value in known]
        panel.errorbar(x, y, None if long else spread, label=label, capsize=3, markersize=3 if long else 6,
                       linewidth=1.6, **style)  # fmt: skip
    ticks = range(0, len(names), math.ceil(len(names) / 16))
    upright = max(len(names[at]) for at in ticks) * len(ticks) <= 80
    panel.set_xticks(ticks, [wrapped(names[at], 18) for at in ticks], rotation=0 if upright else 40,
                     ha="center" if upright else "right", rotation_mode="anchor")  # fmt: skip
    panel.set_ylabel("accuracy, %")
    legend_right(panel)
    return figure
