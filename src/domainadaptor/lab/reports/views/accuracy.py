"""Accuracy: methods by domains."""

from domainadaptor.lab.records.runs import EvaluationRecord
from domainadaptor.lab.reports import counts
from domainadaptor.lab.reports.details import details_table
from domainadaptor.lab.reports.paper import ACCURACY
from domainadaptor.lab.reports.selection import TableRecords
from domainadaptor.lab.reports.tables import NumberFormat, NumberRow, number_table
from domainadaptor.lab.reports.views import View

__all__ = ["accuracy"]


def accuracy(table: TableRecords[EvaluationRecord]) -> View:
    """Show accuracies, and details of the same records."""
    plan = table.layout
    rows = [NumberRow(row.label, row.group, row.paper, counts.accuracy, table.cells(row)) for row in plan.rows]
    style = NumberFormat("accuracy, %", ACCURACY)
    printed, numbers = number_table(plan, rows, style)
    return View((printed,), details_table(table), numbers=tuple(numbers))
