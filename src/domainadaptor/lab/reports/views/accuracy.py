"""Accuracy: methods by domains, along a setting, along the segments of a protocol, and in detail."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from domainadaptor.lab.records.runs import EvaluationRecord, RunSettings, Score, SegmentScore
from domainadaptor.lab.reports import counts, figures, tables
from domainadaptor.lab.reports.details import details_view as details
from domainadaptor.lab.reports.figures import GREY, ReportFigure, error_bars, legend_right, look, panel_for, wrapped
from domainadaptor.lab.reports.numbers import Estimate, as_number, estimate, number, with_deviation
from domainadaptor.lab.reports.paper import ACCURACY
from domainadaptor.lab.reports.selection import TableRecords
from domainadaptor.lab.reports.tables import PrintedTable, ResultNumber, TableLine, View, embolden

__all__ = ["accuracy", "accuracy_curve", "details", "segments"]

_DIRECT = ("batch_size", "images")  # settings of a run that are not options
_WORDS = {"subset": "images per subset", "threshold": "confidence threshold"}  # where a name says too little
_PAPER_LINES = 5  # with more rows than this, the paper's lines would hide ours
_DASHED = {"linestyle": (0, (2, 2)), "linewidth": 1}
_LONG = 30  # segments, from which on error bars would hide the lines


def accuracy(table: TableRecords[EvaluationRecord]) -> View:
    """Show accuracies, a bar for each row, and details of the same records."""
    view = tables.number_table(table.layout, tables.number_rows(table, counts.accuracy), "accuracy, %", ACCURACY)
    return replace(view, more=details(table).tables, figures=_bars(table, view))


def _bars(table: TableRecords[EvaluationRecord], view: View) -> list[ReportFigure]:
    """Return a chart of the means, or of the only column, with standard errors."""
    columns = table.layout.columns
    whole = tables.MEAN if table.layout.mean else columns[0]
    if len(columns) > 1 and not table.layout.mean:
        return []
    names = [row.label for row in table.layout.rows]
    numbers = {(found.group, found.row): found for found in view.numbers if found.column == whole}
    bars, source = [], None
    for row in table.layout.rows:
        found = numbers.get((row.group, row.label))
        if found is None or found.value is None or found.state != "done":
            continue
        records = table.of_row(row)
        each = [counts.standard_error(cell.seeds[0]) or 0.0 for cell in table.cells(row).values()]
        of_seeds = found.deviation / math.sqrt(found.seeds - 1) if found.deviation is not None and found.seeds else 0.0
        error = math.hypot(counts.error_of_mean(each, counts.share_images(records)), of_seeds)
        label = f"{row.group}: {row.label}" if names.count(row.label) > 1 else row.label
        bars.append((label, found.value, error, f"{number(found.value)} ± {number(error)}"))
        if source is None and all(record.run.method == "source" for record in records):
            source = found.value
    if len(bars) < 2:
        return []
    dotted = "" if source is None else " The dotted line is the source model."
    caption = (
        f"{table.layout.title}: accuracy, {whole}, ± one standard error from the choice of images and, where there are "
        f"several, of seeds.{dotted}"
    )
    return [ReportFigure(table.name, caption, partial(figures.bars, bars, source, "accuracy, %"))]


def accuracy_curve(table: TableRecords[EvaluationRecord]) -> View:
    """Show accuracies, and a line per row over the columns as numbers."""
    view = accuracy(table)
    columns = table.layout.columns
    numbers = [found for found in view.numbers if found.value is not None and found.column in columns]
    if not numbers:
        return view
    axis = axis_of(table)
    paper = " Thin dashed lines are the paper's." if any(found.paper is not None for found in numbers) else ""
    bars = " Bars are one standard deviation over seeds." if any(found.deviation for found in numbers) else ""
    caption = f"{table.layout.title}: accuracy by {axis or 'column'}.{bars}{paper}"
    return replace(view, figures=(ReportFigure(table.name, caption, partial(_draw_curve, numbers, columns, axis)),))


def axis_of(table: TableRecords[EvaluationRecord]) -> str:
    """Return the setting whose value names the column in all records, in words; "" if there is none.

    A row that is the same in every column, to compare others with, is ignored.
    """
    shared: set[str] | None = None
    for row in table.layout.rows:
        fits = [
            {name for name, setting in _settings(record.run) if setting == value}
            for column, cell in table.cells(row).items()
            if (value := as_number(column)) is not None
            for record in cell.records
        ]
        if fits and (own := set.intersection(*fits)):
            shared = own if shared is None else shared & own
    names = sorted(shared or (), key=lambda name: (name not in _DIRECT, name))
    return _WORDS.get(names[0], names[0].replace("_", " ")) if names else ""


def _settings(run: RunSettings) -> Iterator[tuple[str, Any]]:
    yield from (("batch_size", run.batch_size), ("images", run.images), ("domains_per_stream", len(run.domains)))
    for options in (run.options, run.protocol_options, run.data_options):
        yield from options.items()


def _draw_curve(numbers: Sequence[ResultNumber], columns: Sequence[str], axis: str) -> Any:
    """Draw a line per row over evenly spaced columns; columns that are words are not connected."""
    rows = list(dict.fromkeys((found.group, found.row) for found in numbers))
    names = [row for _, row in rows]
    labels = [wrapped(f"{group}: {row}" if names.count(row) > 1 else row, 26) for group, row in rows]
    figure, panel = panel_for(10, [*labels, "the paper"])
    with_paper = len(rows) <= _PAPER_LINES and any(found.paper is not None for found in numbers)
    for at, (place, label) in enumerate(zip(rows, labels, strict=True)):
        own = [found for found in numbers if (found.group, found.row) == place]
        line = [found for found in own if as_number(found.column) is not None]
        words = [found for found in own if found not in line]
        for part, style in ((line, look(at)), (words, look(at) | {"linestyle": "none"})):
            points = [(columns.index(found.column), found.value or 0.0, found.deviation) for found in part]
            error_bars(panel, points, label=label if part is line or not line else None, **style)
        if with_paper:
            paper = [(columns.index(found.column), found.paper) for found in line if found.paper is not None]
            panel.plot([x for x, _ in paper], [y for _, y in paper], color=look(at)["color"], **_DASHED)
    if with_paper:
        panel.plot([], [], color=GREY, label="the paper", **_DASHED)
    panel.set_xticks(range(len(columns)), columns)
    panel.set(xlabel=axis, ylabel="accuracy, %")
    legend_right(panel)
    return figure


@dataclass(frozen=True)
class _Path:
    """A method on its way through the segments."""

    label: str
    group: str
    names: list[str]
    values: list[Estimate | None]  # per segment, then over all of them
    resets: frozenset[int]  # segments before which the adaptor was reset
    reference: bool  # the source model


def segments(table: TableRecords[EvaluationRecord]) -> View:
    """Show a table and a line plot per column: methods by segments."""
    plan = table.layout
    printed, drawn, numbers = [], [], []
    for at, column in enumerate(plan.columns):
        paths = _paths(table, column)
        if not paths:
            continue
        names = max((path.names for path in paths), key=len)
        values = [[*p.values[:-1], *[None] * (len(names) - len(p.names)), p.values[-1]] for p in paths]
        lines = [TableLine(p.label, tuple(map(with_deviation, v)), p.group) for p, v in zip(paths, values, strict=True)]
        for place in range(len(names) + 1):
            lines = embolden(lines, place, [found.mean if (found := line[place]) else None for line in values])
        caption = f"{column}: accuracy in percent by segment." if len(plan.columns) > 1 else ""
        printed.append(PrintedTable(plan.corner, (*names, "all"), lines, caption))
        for path in paths:
            titles = [*(f"{column}: {place} {name}" for place, name in enumerate(path.names, 1)), f"{column}: all"]
            numbers += [
                ResultNumber(path.group, path.label, title, "accuracy, %", found.mean, found.deviation, found.seeds)
                for title, found in zip(titles, path.values, strict=True)
                if found
            ]
        resets = " Dotted lines: the adaptor was reset." if any(path.resets for path in paths) else ""
        title = f"{plan.title}: accuracy by segment, {column}; grey is the source model.{resets}"
        name = table.name if at == 0 else f"{table.name}-{at + 1}"
        drawn.append(ReportFigure(name, title, partial(_draw_segments, paths, names)))
    return View(printed, details(table).tables, drawn, numbers)


def _paths(table: TableRecords[EvaluationRecord], column: str) -> list[_Path]:
    paths: list[_Path] = []
    source: _Path | None = None
    for row in table.layout.rows:
        runs = [_parts(record) for record in table.cell(row, column).records if record.segments]
        if not runs or len({len(run) for run in runs}) > 1:
            continue
        names = [name for name, _ in runs[0]]
        resets = frozenset(at for at, (_, part) in enumerate(runs[0]) if at and getattr(part, "fresh", False))
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
    counted = [[(getattr(part, count), part.images) for _, part in run] for run in runs]
    columns = [*zip(*counted, strict=True), [tuple(map(sum, zip(*run, strict=True))) for run in counted]]
    return [estimate([100 * right / images for right, images in column if images]) for column in columns]


def _draw_segments(paths: Sequence[_Path], names: Sequence[str]) -> Any:
    labels = [wrapped(path.label, 26) for path in paths]
    figure, panel = panel_for(10.5, labels)
    long = len(names) > _LONG
    for reset in sorted({at for path in paths for at in path.resets}) if not long else []:
        panel.axvline(reset - 0.5, color=GREY, linestyle=":", linewidth=1)
    looks = iter(range(len(paths)))
    for path, label in zip(paths, labels, strict=True):
        style = {"color": GREY, "marker": "" if len(names) > 1 else "_"} if path.reference else look(next(looks))
        known = [(at, v.mean, None if long else v.deviation) for at, v in enumerate(path.values[:-1]) if v]
        error_bars(panel, known, label=label, size=3 if long else 6, **style)
    ticks = range(0, len(names), math.ceil(len(names) / 16))
    upright = max(len(names[at]) for at in ticks) * len(ticks) <= 80
    panel.set_xticks(ticks, [wrapped(names[at], 18) for at in ticks], rotation=0 if upright else 40,
                     ha="center" if upright else "right", rotation_mode="anchor")  # fmt: skip
    panel.set_ylabel("accuracy, %")
    legend_right(panel)
    return figure
