"""Details: one line per method with changed answers, calibration, time and memory."""

from domainadaptor.lab.records.runs import EvaluationRecord
from domainadaptor.lab.reports.details import details_numbers, details_table
from domainadaptor.lab.reports.selection import TableRecords
from domainadaptor.lab.reports.views import View

__all__ = ["details"]


def details(table: TableRecords[EvaluationRecord]) -> View:
    """Show the details of each row."""
    return View(details_table(table), numbers=tuple(details_numbers(table)))
