"""Accuracy: methods by domains, or along a setting as a curve."""

from dataclasses import replace
from functools import partial

from domainadaptor.lab.reports.counts import accuracy
from domainadaptor.lab.reports.figures.lines import draw_curves
from domainadaptor.lab.reports.paper import ACCURACY
from domainadaptor.lab.reports.tables import Kind, NumberRow, number_table
from domainadaptor.lab.reports.views.axis import axis_of
from domainadaptor.lab.reports.views.details import details_grid
from domainadaptor.lab.reports.views.shown import Ask, Figure, Shown

_KIND = Kind("accuracy, %", ACCURACY)


def show(ask: Ask) -> Shown:
    """The table, and more numbers of the same records for those who look closer."""
    table = ask.table
    rows = [
        NumberRow(row.label, row.group, row.paper, partial(accuracy, of=row.value), ask.cells(row))
        for row in table.rows
    ]
    grid, facts = number_table(table.corner, table.columns, table.mean, rows, table.paper, _KIND)
    return Shown((grid,), details_grid(ask), facts=tuple(facts), gaps=ask.gaps())


def show_curve(ask: Ask) -> Shown:
    """The table, and a line a row over the columns as numbers."""
    shown, table = show(ask), ask.table
    facts = [fact for fact in shown.facts if fact.value is not None and fact.column in table.columns]
    if not facts:
        return shown
    axis = axis_of(ask)
    paper = " Thin dashed lines are the paper's." if any(fact.paper is not None for fact in facts) else ""
    bars = " Bars are one standard deviation over seeds." if any(fact.deviation for fact in facts) else ""
    figure = Figure(
        ask.name,
        f"{table.title}: accuracy by {axis or 'column'}.{bars}{paper}",
        partial(draw_curves, facts, table.columns, axis),
    )
    return replace(shown, figures=(figure,))
