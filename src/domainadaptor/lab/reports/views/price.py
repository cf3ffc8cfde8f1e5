"""What each method costs and what it reaches: time against accuracy, over all columns together."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from domainadaptor.lab.records.runs import EvaluationRecord
from domainadaptor.lab.reports.counts import accuracy, relative_time
from domainadaptor.lab.reports.figures import (
    COLORS,
    MARKERS,
    ReportFigure,
    legend_right,
    panels,
    tall_enough,
    wrapped,
)
from domainadaptor.lab.reports.numbers import number, with_deviation
from domainadaptor.lab.reports.selection import TableRecords
from domainadaptor.lab.reports.tables import (
    MEAN,
    NumberRow,
    PrintedTable,
    ResultNumber,
    TableLine,
    embolden,
    estimates,
)
from domainadaptor.lab.reports.views import View

__all__ = ["price"]

_COLUMNS = ("relative time", "accuracy, %")


def price(table: TableRecords[EvaluationRecord]) -> View:
    """Show a line and a point for each row that is complete."""
    plan = table.layout
    rows = [NumberRow(row.label, row.group, None, accuracy, table.cells(row)) for row in plan.rows]
    found = estimates(rows, plan.columns)
    lines, numbers, points = [], [], []
    for at, row in enumerate(plan.rows):
        time, reached = relative_time(table.of_row(row)), found.get((at, MEAN))
        if time is None or reached is None:
            continue
        points.append((row.label, time, reached.mean))
        lines.append(TableLine(row.label, (number(time, 2), with_deviation(reached)), row.group))
        numbers.append(ResultNumber(row.group, row.label, MEAN, _COLUMNS[0], time, seeds=reached.seeds))
        numbers.append(
            ResultNumber(row.group, row.label, MEAN, _COLUMNS[1], reached.mean, reached.deviation, reached.seeds)
        )
    if not points:
        return View()
    lines = embolden(lines, 1, [reached for _, _, reached in points])
    caption = (
        f"Accuracy: mean over {', '.join(plan.columns)}. Relative time: of all their batches together, divided by the "
        "time of the source model."
    )
    figure = ReportFigure(table.name, f"{plan.title}: higher is better, left is cheaper.", partial(_draw, points))
    return View(
        (PrintedTable(plan.corner, _COLUMNS, tuple(lines), caption),), figures=(figure,), numbers=tuple(numbers)
    )


def _draw(points: Sequence[tuple[str, float, float]]) -> Any:
    labels = [wrapped(name, 34) for name, _, _ in points]
    figure, (panel,) = panels(1, 1, 10, tall_enough(4.6, labels))
    for at, (label, (_, time, reached)) in enumerate(zip(labels, points, strict=True)):
        color, marker = COLORS[at % len(COLORS)], MARKERS[(at + at // len(COLORS)) % len(MARKERS)]
        panel.scatter(time, reached, label=label, s=64, zorder=3, color=color, marker=marker)
    panel.margins(0.08, 0.12)
    panel.set_xlabel("time per batch, relative to the source model")
    panel.set_ylabel("accuracy, %")
    legend_right(panel)
    return figure
