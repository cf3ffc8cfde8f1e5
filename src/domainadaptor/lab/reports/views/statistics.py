"""Measurements of batch norm statistics: distances between them, and their variance."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from domainadaptor.lab.reports.cells import Record
from domainadaptor.lab.reports.figures.depth import Trend, draw_trends
from domainadaptor.lab.reports.paper import DISTANCE, VARIANCE
from domainadaptor.lab.reports.tables import Kind, NumberRow, number_table
from domainadaptor.lab.reports.views.shown import Ask, Figure, Shown


def show_distances(ask: Ask) -> Shown:
    """A line for each distance that was measured."""
    table = ask.table
    rows = []
    for row in table.rows:
        names = dict.fromkeys(name for record in ask.records(row) for name in record["values"])
        for name in names or [row.label]:
            label = f"{row.label}: {name}" if len(table.rows) > 1 and name != row.label else name
            rows.append(NumberRow(label, row.group, name, partial(_value, name=name), ask.cells(row)))
    kind = Kind("distance", DISTANCE, 3, "none")
    grid, facts = number_table(table.corner, table.columns, table.mean, rows, table.paper, kind)
    return Shown((grid,), facts=tuple(facts), gaps=ask.gaps())


def show_variance(ask: Ask) -> Shown:
    """The variance of each column, and of each layer as a plot."""
    table = ask.table
    rows = [
        NumberRow(row.label, row.group, row.paper or "variance", partial(_value, name="variance"), ask.cells(row))
        for row in table.rows
    ]
    grid, facts = number_table(
        table.corner, table.columns, table.mean, rows, table.paper, Kind("variance", VARIANCE, 3, "none")
    )
    panels: dict[str, list[Trend]] = {}
    for row in table.rows:
        for column, cell in ask.cells(row).items():
            layers = _layers(cell.records)
            if layers:
                trend = Trend(column, tuple(layers), np.array(list(layers.values())), regression=False)
                panels.setdefault(row.label, []).append(trend)
    caption = f"{table.title}: variance by depth, one color a column."
    figures = (Figure(ask.name, caption, partial(draw_trends, panels, "variance of the statistics")),) if panels else ()
    return Shown((grid,), (), figures, tuple(facts), ask.gaps())


def _value(records: Sequence[Record], name: str) -> float | None:
    """Of one record; several are never counted together, since they hold no counts."""
    value = records[0]["values"].get(name)
    return None if value is None else float(value)


def _layers(records: Sequence[Record]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for record in records:
        for layer, value in record["values"].get("layers", {}).items():
            found.setdefault(layer, []).append(value)
    return {layer: float(np.mean(values)) for layer, values in found.items()}
