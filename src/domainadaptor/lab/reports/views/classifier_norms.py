"""Norms of a classifier's weights against how many images each class was trained on."""

from functools import partial

import numpy as np

from domainadaptor.lab.reports.cells import Record
from domainadaptor.lab.reports.figures.scatter import Cloud, draw_clouds
from domainadaptor.lab.reports.grid import Entry, Fact, Grid, Line, number
from domainadaptor.lab.reports.views.shown import Ask, Figure, Shown


def show(ask: Ask) -> Shown:
    """Classes by columns, the correlation below them, and a scatter plot, a panel a row and column."""
    clouds = []
    for row in ask.table.rows:
        for column, cell in ask.cells(row).items():
            if cell.records:
                trained = _without(column, cell.records)
                title = f"{row.label}, {trained}" if len(ask.table.rows) > 1 else trained
                clouds.append(_cloud(title, cell.records))
    if not clouds:
        return Shown(gaps=ask.gaps())
    classes = list(dict.fromkeys(name for cloud in clouds for name in cloud.names))
    lines = [Line(name, tuple(Entry(_both(cloud, name)) for cloud in clouds)) for name in classes]
    lines.append(Line("correlation", tuple(Entry(number(cloud.correlation, 2)) for cloud in clouds)))
    facts = [
        Fact(name, cloud.title, what, value)
        for cloud in clouds
        for name, images, norm in zip(cloud.names, cloud.images, cloud.norms, strict=True)
        for what, value in (("training images", float(images)), ("norm", float(norm)))
    ]
    facts += [Fact("all classes", cloud.title, "correlation", cloud.correlation) for cloud in clouds]
    grid = Grid("class", tuple(cloud.title for cloud in clouds), tuple(lines), "Norm of the weights (training images).")
    caption = f"{ask.table.title}: norm of each class's weights by its number of training images."
    return Shown((grid,), (), (Figure(ask.name, caption, partial(draw_clouds, clouds)),), tuple(facts), ask.gaps())


def _without(column: str, records: list[Record]) -> str:
    """A column is a target: what the network was trained on is all but that."""
    sources = [record["run"].get("checkpoint", {}).get("sources") or [] for record in records]
    return f"without {column}" if all(own and column not in own for own in sources) else column


def _cloud(title: str, records: list[Record]) -> Cloud:
    """Mean over seeds, class by class."""
    found: dict[str, list[tuple[float, float]]] = {}
    for record in records:
        for entry in record["values"]["classes"]:
            found.setdefault(entry["name"], []).append((entry["images"], entry["norm"]))
    means = np.array([np.mean(values, axis=0) for values in found.values()])
    images, norms = means[:, 0], means[:, 1]
    varied = len(images) > 1 and images.std() > 0 and norms.std() > 0
    return Cloud(title, tuple(found), images, norms, float(np.corrcoef(images, norms)[0, 1]) if varied else None)


def _both(cloud: Cloud, name: str) -> str:
    if name not in cloud.names:
        return ""
    at = cloud.names.index(name)
    return f"{number(float(cloud.norms[at]), 2)} ({cloud.images[at]:.0f})"
