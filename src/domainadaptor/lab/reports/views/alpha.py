"""The weight of the source in each layer, by depth."""

from functools import partial

import numpy as np

from domainadaptor.lab.reports.cells import Cell
from domainadaptor.lab.reports.figures.depth import Trend, draw_trends
from domainadaptor.lab.reports.grid import Entry, Fact, Grid, Line, number
from domainadaptor.lab.reports.views.shown import Ask, Figure, Shown

_COLUMNS = ("layers", "first layer", "last layer", "mean", "slope over the depth", "correlation with depth")


def show(ask: Ask) -> Shown:
    """A line a row and column; and a plot of all layers with regression lines, a panel a row."""
    table = ask.table
    lines, facts = [], []
    panels: dict[str, list[Trend]] = {}
    for row in table.rows:
        for column, cell in ask.cells(row).items():
            layers = layer_means(cell)
            if not layers:
                continue
            label = f"{row.label}, {column}" if len(table.rows) > 1 else column
            trend = Trend(column, tuple(layers), np.array(list(layers.values())))
            numbers = _numbers(trend)
            panels.setdefault(row.label, []).append(trend)
            lines.append(
                Line(label, tuple(Entry(number(v, 0 if at == 0 else 2)) for at, v in enumerate(numbers)), row.group)
            )
            facts += [
                Fact(row.label, column, f"alpha of {layer}", value, seeds=len(cell.seeds), group=row.group)
                for layer, value in layers.items()
            ]
    if not lines:
        return Shown(gaps=ask.gaps(), problem="" if ask.gaps() else "no record of it has alphas: its method has none")
    grid = Grid(
        "domain", _COLUMNS, tuple(lines),
        "Alpha is the weight of the source statistics in a layer, mean over batches and seeds; the slope is of the "
        "regression line from the first to the last layer.",
    )  # fmt: skip
    caption = f"{table.title}: alpha by depth, one color a domain, with regression lines."
    figure = Figure(ask.name, caption, partial(draw_trends, panels, "alpha (weight of the source)"))
    return Shown((grid,), (), (figure,), tuple(facts), ask.gaps())


def layer_means(cell: Cell) -> dict[str, float]:
    """Alpha of each layer, mean over records, in the network's order."""
    found: dict[str, list[float]] = {}
    for record in cell.records:
        for layer, value in record.get("alpha", {}).items():
            found.setdefault(layer, []).append(value)
    return {layer: float(np.mean(values)) for layer, values in found.items()}


def _numbers(trend: Trend) -> tuple[float | None, ...]:
    values = trend.values
    if len(values) < 2:
        return (float(len(values)), values[0], values[-1], float(values.mean()), None, None)
    slope, _ = trend.line()
    spread = values.std()
    correlation = float(np.corrcoef(np.arange(len(values)), values)[0, 1]) if spread > 0 else None
    return (float(len(values)), values[0], values[-1], float(values.mean()), slope, correlation)
