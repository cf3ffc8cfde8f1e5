"""The weight of the source statistics in each layer, by depth."""

from functools import partial

import numpy as np
import pandas as pd

from domainadaptor.lab.records.runs import EvaluationRecord
from domainadaptor.lab.reports.figures import LayerTrend, ReportFigure, draw_trends
from domainadaptor.lab.reports.numbers import number
from domainadaptor.lab.reports.selection import TableRecords
from domainadaptor.lab.reports.tables import PrintedTable, ResultNumber, TableLine
from domainadaptor.lab.reports.views import View

__all__ = ["alpha"]

_COLUMNS = ("layers", "first layer", "last layer", "mean", "slope over depth", "depth correlation")
_CAPTION = (
    "Alpha is the weight of the source statistics in a layer, averaged over batches and seeds; the slope is that of "
    "the regression line from the first to the last layer."
)


def alpha(table: TableRecords[EvaluationRecord]) -> View:
    """Show a line per row and column, and a plot of all layers."""
    lines, numbers = [], []
    trends: dict[str, list[LayerTrend]] = {}
    for row in table.layout.rows:
        for column, cell in table.cells(row).items():
            if not any(record.alpha for record in cell.records):
                continue
            # Columns of the frame keep the network's order of layers.
            layers = pd.DataFrame([dict(record.alpha) for record in cell.records]).mean()
            trend = LayerTrend(column, {str(layer): float(value) for layer, value in layers.items()})
            trends.setdefault(row.label, []).append(trend)
            label = f"{row.label}, {column}" if len(table.layout.rows) > 1 else column
            lines.append(TableLine(label, _summary(trend), row.group))
            numbers += [
                ResultNumber(row.group, row.label, column, f"alpha of {layer}", value, seeds=len(cell.seeds))
                for layer, value in trend.layers.items()
            ]
    if not lines:
        return View(problem="" if table.gaps() else "its records have no alpha: the method does not mix statistics")
    caption = f"{table.layout.title}: alpha by depth, one color per domain, with regression lines."
    draw = partial(draw_trends, trends, "alpha (weight of the source)", regression=True)
    printed = PrintedTable("domain", _COLUMNS, tuple(lines), _CAPTION)
    return View((printed,), figures=(ReportFigure(table.name, caption, draw),), numbers=tuple(numbers))


def _summary(trend: LayerTrend) -> tuple[str, ...]:
    values = trend.values
    several = len(values) > 1
    slope = trend.line()[0] if several else None
    correlation = float(np.corrcoef(np.arange(len(values)), values)[0, 1]) if several and values.std() > 0 else None
    found = (float(values[0]), float(values[-1]), float(values.mean()), slope, correlation)
    return (str(len(values)), *(number(value, 2) for value in found))
