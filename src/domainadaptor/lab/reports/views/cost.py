"""Time per batch relative to the source model, and accuracy against time."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from domainadaptor.lab.records.runs import EvaluationRecord
from domainadaptor.lab.reports import figures, tables
from domainadaptor.lab.reports.counts import accuracy, milliseconds, relative_time, source_milliseconds
from domainadaptor.lab.reports.numbers import Estimate, estimate, number, with_deviation
from domainadaptor.lab.reports.paper import ACCURACY, MILLISECONDS, paper_value
from domainadaptor.lab.reports.selection import NumberOf, TableRecords
from domainadaptor.lab.reports.tables import MEAN, PrintedTable, TableLine, View, embolden, result

__all__ = ["price", "time"]

_TIME, _RATIO, _ACCURACY = "ms per batch", "relative time", "accuracy, %"
_MEASURES: dict[str, NumberOf[EvaluationRecord]] = {
    _TIME: milliseconds, "source model, ms": source_milliseconds, _RATIO: relative_time, _ACCURACY: accuracy
}  # fmt: skip
_PAPER = {_TIME: "paper, ms", _RATIO: "paper, relative time", _ACCURACY: "paper, accuracy, %"}
_SOURCE = "none"  # what the paper's table calls the source model


def price(table: TableRecords[EvaluationRecord]) -> View:
    """Show a line and a point for each row that is complete."""
    plan = table.layout
    found = tables.estimates(tables.number_rows(table, accuracy), plan.columns)
    lines, numbers, points = [], [], []
    for at, row in enumerate(plan.rows):
        time, reached = relative_time(table.of_row(row)), found.get((at, MEAN))
        if time is None or reached is None:
            continue
        points.append((row.label, time, reached.mean))
        lines.append(TableLine(row.label, (number(time, 2), with_deviation(reached)), row.group))
        numbers.append(result(row, MEAN, _RATIO, Estimate(time, seeds=reached.seeds)))
        numbers.append(result(row, MEAN, _ACCURACY, reached))
    if not points:
        return View()
    lines = embolden(lines, 1, [reached for _, _, reached in points])
    caption = (
        f"Accuracy: mean over {', '.join(plan.columns)}. Relative time: of all their batches together, divided by the "
        "time of the source model."
    )
    figure = figures.ReportFigure(
        table.name, f"{plan.title}: higher is better, left is cheaper.", partial(_scatter, points)
    )
    return View((PrintedTable(plan.corner, (_RATIO, _ACCURACY), lines, caption),), (), (figure,), numbers)


def _scatter(points: Sequence[tuple[str, float, float]]) -> Any:
    labels = [figures.wrapped(name, 34) for name, _, _ in points]
    figure, panel = figures.panel_for(10, labels)
    colors, markers = figures.COLORS, figures.MARKERS
    for at, (label, (_, time, reached)) in enumerate(zip(labels, points, strict=True)):
        color, marker = colors[at % len(colors)], markers[(at + at // len(colors)) % len(markers)]
        panel.scatter(time, reached, label=label, s=64, zorder=3, color=color, marker=marker)
    panel.margins(0.08, 0.12)
    panel.set(xlabel="time per batch, relative to the source model", ylabel="accuracy, %")
    figures.legend_right(panel)
    return figure


def time(table: TableRecords[EvaluationRecord]) -> View:
    """Show milliseconds, relative time and the paper's numbers per row and column, and relative times as bars."""
    plan = table.layout
    lines, ratios, numbers, bars = [], [], [], []
    for row in plan.rows:
        for column, cell in table.cells(row).items():
            if not cell.seeds and not cell.gaps:
                continue
            label = f"{row.label}, {column}" if len(plan.columns) > 1 else row.label
            ours = {name: estimate(cell.values(measure)) for name, measure in _MEASURES.items()}
            paper = _paper(table, row.paper, column)
            numbers += [
                result(row, column, name, ours[name], paper=paper.get(name), gaps=cell.gaps) for name in _MEASURES
            ]
            texts = [with_deviation(found, 2 if name == _RATIO else 1) for name, found in ours.items()]
            if not cell.seeds:
                texts[0] = "failed" if any(gap.failed for gap in cell.gaps) else "missing"
            texts += [with_deviation(paper[name], 2 if name == _RATIO else 1) for name in _PAPER]
            lines.append(TableLine(label, tuple(texts), row.group))
            found = ours[_RATIO]
            adapts = any(record.run.method != "source" for record in cell.records)
            ratios.append(found.mean if found and adapts else None)
            if found:
                text = f"{found.mean:.2f}x" + (f", {time.mean:.1f} ms" if (time := ours[_TIME]) else "")
                bars.append((label, found.mean, found.deviation, text))
    lines = embolden(lines, 2, ratios, lowest=True)
    printed = PrintedTable(plan.corner, (*_MEASURES, *_PAPER.values()), lines).without_empty_columns()
    caption = "Relative time: time per batch divided by that of the source model on the same batches of the same run."
    if len(printed.columns) > len(_MEASURES):
        caption += " The paper's times are for an RTX 2080: compare ratios, not milliseconds."
    title = f"{plan.title}: time per batch, relative to the source model."
    axis = "time per batch, relative to the source model (dotted line: 1)"
    drawing = [figures.ReportFigure(table.name, title, partial(figures.bars, bars, 1, axis))] if bars else []
    return View((replace(printed, caption=caption),), (), drawing, numbers)


def _paper(table: TableRecords[EvaluationRecord], row: Any, column: str) -> dict[str, Estimate | None]:
    """Return the paper's means by measure; its accuracies have no deviation here."""
    places = ((row, MILLISECONDS), (_SOURCE, MILLISECONDS), (row, ACCURACY))
    found = [paper_value(table.layout.paper, name, column, unit) for name, unit in places]
    time, source, reached = (Estimate(value.mean) if value else None for value in found)
    ratio = Estimate(time.mean / source.mean) if time and source else None
    return {_TIME: time, _RATIO: ratio, _ACCURACY: reached}
