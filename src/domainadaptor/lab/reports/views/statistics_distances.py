"""Distances between batch norm statistics."""

from collections.abc import Sequence
from functools import partial

from domainadaptor.lab.records.measurements import StatisticsDistances
from domainadaptor.lab.records.runs import MeasurementRecord
from domainadaptor.lab.reports.paper import DISTANCE
from domainadaptor.lab.reports.selection import TableRecords
from domainadaptor.lab.reports.tables import NumberFormat, NumberRow, number_table
from domainadaptor.lab.reports.views import View

__all__ = ["statistics_distances"]

_DISTANCES = {field.alias or name: name for name, field in StatisticsDistances.model_fields.items()}


def statistics_distances(table: TableRecords[MeasurementRecord]) -> View:
    """Show a line for each distance."""
    plan = table.layout
    rows = []
    for row in plan.rows:
        for title, name in _DISTANCES.items() if table.of_row(row) else [(row.label, "")]:
            label = f"{row.label}: {title}" if len(plan.rows) > 1 and title != row.label else title
            rows.append(NumberRow(label, row.group, title, partial(_distance, name=name), table.cells(row)))
    style = NumberFormat("distance", DISTANCE, 3, best="")
    printed, numbers = number_table(plan, rows, style)
    return View((printed,), numbers=tuple(numbers))


def _distance(records: Sequence[MeasurementRecord], name: str) -> float | None:
    return getattr(records[0].read(StatisticsDistances), name, None)
