"""Variance of batch norm statistics over training steps."""

from collections.abc import Sequence
from functools import partial

import pandas as pd

from domainadaptor.lab.records.measurements import StatisticsVariance
from domainadaptor.lab.records.runs import MeasurementRecord
from domainadaptor.lab.reports.figures import LayerTrend, ReportFigure, draw_trends
from domainadaptor.lab.reports.paper import VARIANCE
from domainadaptor.lab.reports.selection import TableRecords
from domainadaptor.lab.reports.tables import NumberFormat, NumberRow, number_table
from domainadaptor.lab.reports.views import View

__all__ = ["statistics_variance"]


def statistics_variance(table: TableRecords[MeasurementRecord]) -> View:
    """Show the variance of each column, and of each layer as a plot."""
    plan = table.layout
    rows = [NumberRow(row.label, row.group, row.paper or "variance", _variance, table.cells(row)) for row in plan.rows]
    style = NumberFormat("variance", VARIANCE, 3, best="")
    printed, numbers = number_table(plan, rows, style)
    trends: dict[str, list[LayerTrend]] = {}
    for row in plan.rows:
        for column, cell in table.cells(row).items():
            layers = pd.DataFrame([record.read(StatisticsVariance).layers for record in cell.records]).mean()
            if len(layers):
                trend = LayerTrend(column, {str(layer): float(value) for layer, value in layers.items()})
                trends.setdefault(row.label, []).append(trend)
    draw = partial(draw_trends, trends, "variance of the statistics", regression=False)
    figure = ReportFigure(table.name, f"{plan.title}: variance by depth, one color per column.", draw)
    return View((printed,), figures=(figure,) if trends else (), numbers=tuple(numbers))


def _variance(records: Sequence[MeasurementRecord]) -> float:
    return records[0].read(StatisticsVariance).variance
