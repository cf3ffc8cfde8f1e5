"""Measured numbers: alpha and the statistics of norm layers, also by depth."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from domainadaptor.lab.records.measurements import StatisticsVariance
from domainadaptor.lab.records.plans import PlannedRow
from domainadaptor.lab.records.runs import EvaluationRecord, MeasurementRecord
from domainadaptor.lab.reports.figures import ReportFigure, legend_right, look, panels, tall_enough
from domainadaptor.lab.reports.numbers import Estimate, number
from domainadaptor.lab.reports.paper import DISTANCE, VARIANCE
from domainadaptor.lab.reports.selection import TableRecords
from domainadaptor.lab.reports.tables import NumberRow, PrintedTable, TableLine, View, number_rows, number_table, result

__all__ = ["alpha", "measured_numbers", "statistics_distances", "statistics_variance"]

_COLUMNS = ("layers", "first layer", "last layer", "mean", "slope over depth", "depth correlation")
_CAPTION = (
    "Alpha is the weight of the source statistics in a layer, averaged over batches and seeds; the slope is that of "
    "the regression line from the first to the last layer."
)
_Trends = dict[str, dict[str, "pd.Series[float]"]]  # row -> column -> value by layer, from the input on


def measured_numbers(table: TableRecords[MeasurementRecord], measure: str = "value", unit: str = "value") -> View:
    """Show a line for each number that was measured."""
    plan = table.layout
    rows = []
    for row in plan.rows:
        known = (name for record in table.of_row(row) for name in record.values if _number([record], name) is not None)
        for name in dict.fromkeys(known) or {row.label: None}:
            label = f"{row.label}: {name}" if len(plan.rows) > 1 and name != row.label else name
            rows.append(NumberRow(label, row.group, name, partial(_number, name=name), table.cells(row)))
    return number_table(plan, rows, measure, unit, 3, bold=False)


def _number(records: Sequence[MeasurementRecord], name: str) -> float | None:
    value = records[0].values.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def statistics_distances(table: TableRecords[MeasurementRecord]) -> View:
    """Show a line for each distance between batch norm statistics."""
    return measured_numbers(table, "distance", DISTANCE)


def statistics_variance(table: TableRecords[MeasurementRecord]) -> View:
    """Show the variance of batch norm statistics over training steps."""
    rows = number_rows(table, lambda records: records[0].read(StatisticsVariance).variance, "variance")
    return number_table(table.layout, rows, "variance", VARIANCE, 3, bold=False)


def alpha(table: TableRecords[EvaluationRecord]) -> View:
    """Show the weight of the source statistics: a line per row and column, and a plot of all layers."""
    lines, numbers = [], []
    trends: _Trends = {}
    for row, column, layers in _by_layer(table):
        trends.setdefault(row.label, {})[column] = layers
        label = f"{row.label}, {column}" if len(table.layout.rows) > 1 else column
        lines.append(TableLine(label, _summary(layers.to_numpy()), row.group))
        seeds = len(table.cell(row, column).seeds)
        for layer, value in layers.items():
            numbers.append(result(row, column, f"alpha of {layer}", Estimate(float(value), seeds=seeds)))
    if not lines:
        return View(problem="" if table.gaps() else "its records have no alpha: the method does not mix statistics")
    caption = f"{table.layout.title}: alpha by depth, one color per domain, with regression lines."
    printed = PrintedTable("domain", _COLUMNS, lines, _CAPTION)
    return View((printed,), (), (ReportFigure(table.name, caption, partial(_draw, trends)),), numbers)


def _by_layer(table: TableRecords[EvaluationRecord]) -> Iterator[tuple[PlannedRow, str, "pd.Series[float]"]]:
    """Yield the mean over records layer by layer, in the network's order, for each cell that has an alpha."""
    for row in table.layout.rows:
        for column, cell in table.cells(row).items():
            found = pd.DataFrame([record.alpha for record in cell.records]).mean()
            if len(found):
                yield row, column, found


def _summary(values: "np.ndarray[Any, Any]") -> tuple[str, ...]:
    several = len(values) > 1
    slope = _line(values)[0] if several else None
    correlation = float(np.corrcoef(np.arange(len(values)), values)[0, 1]) if several and values.std() > 0 else None
    found = (float(values[0]), float(values[-1]), float(values.mean()), slope, correlation)
    return (str(len(values)), *(number(value, 2) for value in found))


def _line(values: "np.ndarray[Any, Any]") -> tuple[float, float]:
    """Return slope, from the first layer at 0 to the last at 1, and start of the least-squares line."""
    slope, start = np.polyfit(np.linspace(0, 1, len(values)), values, 1)
    return float(slope), float(start)


def _draw(found: _Trends) -> Any:
    """Draw alpha by depth with a regression line: one panel per row, one color per column."""
    figure, shown = panels(len(found), 1, 9.5, tall_enough(4.2, max(map(list, found.values()), key=len)), sharey=True)
    for panel, (title, trends) in zip(shown, found.items(), strict=True):
        for at, (label, layers) in enumerate(trends.items()):
            depth, values = np.arange(1, len(layers) + 1), layers.to_numpy()
            panel.plot(depth, values, label=label, linewidth=0.8, alpha=0.75, markersize=5, **look(at))
            if len(depth) > 1:
                slope, start = _line(values)
                panel.plot(depth[[0, -1]], [start, start + slope], linewidth=2.4, **look(at) | {"marker": ""})
        if len(found) > 1:
            panel.set_title(title, loc="left")
        panel.set_ylabel("alpha (weight of the source)")
        panel.xaxis.get_major_locator().set_params(integer=True)
        legend_right(panel)
    shown[-1].set_xlabel("norm layer, counted from the input")
    return figure
