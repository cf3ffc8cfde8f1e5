"""What each row costs and what it reaches: time against accuracy, over all columns together."""

from functools import partial

from domainadaptor.lab.reports.cells import mean_over
from domainadaptor.lab.reports.counts import accuracy, ratio
from domainadaptor.lab.reports.figures.scatter import draw_prices
from domainadaptor.lab.reports.grid import Entry, Fact, Grid, Line, embolden, number, with_deviation
from domainadaptor.lab.reports.tables import MEAN
from domainadaptor.lab.reports.views.shown import Ask, Figure, Shown

_COLUMNS = ("times plain", "accuracy, %")


def show(ask: Ask) -> Shown:
    """A line a row that has all its columns, and a plot of all of them."""
    lines, facts = [], []
    points: list[tuple[str, float, float]] = []
    for row in ask.table.rows:
        cost, reached = ratio(ask.records(row)), mean_over(list(ask.cells(row).values()), accuracy)
        if cost is None or reached is None:
            continue
        points.append((row.label, cost, reached.mean))
        lines.append(Line(row.label, (Entry(number(cost, 2)), Entry(with_deviation(reached))), row.group))
        facts += [
            Fact(row.label, MEAN, "times plain", cost, None, reached.seeds, row.group),
            Fact(row.label, MEAN, "accuracy, %", reached.mean, reached.deviation, reached.seeds, row.group),
        ]
    if not points:
        return Shown(gaps=ask.gaps())
    lines = embolden(lines, 1, [reached for _, _, reached in points])
    grid = Grid(
        ask.table.corner,
        _COLUMNS,
        tuple(lines),
        f"Accuracy: mean over {', '.join(ask.table.columns)}; time: of all their batches together.",
    )
    caption = f"{ask.table.title}: above is better, left is cheaper."
    figure = Figure(ask.name, caption, partial(draw_prices, *zip(*points, strict=True)))
    return Shown((grid,), figures=(figure,), facts=tuple(facts), gaps=ask.gaps())
