"""The numbers of a measurement that has no view."""

from collections.abc import Sequence
from functools import partial

from domainadaptor.lab.records.runs import MeasurementRecord
from domainadaptor.lab.reports.selection import TableRecords
from domainadaptor.lab.reports.tables import NumberFormat, NumberRow, number_table
from domainadaptor.lab.reports.views import View

__all__ = ["measured_numbers"]


def measured_numbers(table: TableRecords[MeasurementRecord]) -> View:
    """Show a line for each number that was measured."""
    plan = table.layout
    rows = []
    for row in plan.rows:
        known = (name for record in table.of_row(row) for name in record.values if _number([record], name) is not None)
        for name in dict.fromkeys(known) or {row.label: None}:
            label = f"{row.label}: {name}" if len(plan.rows) > 1 and name != row.label else name
            rows.append(NumberRow(label, row.group, name, partial(_number, name=name), table.cells(row)))
    printed, numbers = number_table(plan, rows, NumberFormat("value", "value", 3, best=""))
    return View((printed,), numbers=tuple(numbers))


def _number(records: Sequence[MeasurementRecord], name: str) -> float | None:
    value = records[0].values.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
