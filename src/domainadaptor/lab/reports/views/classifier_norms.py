"""Norms of the classifier's weights against the number of training images per class."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from domainadaptor.lab.records.measurements import ClassifierNorms
from domainadaptor.lab.records.runs import MeasurementRecord
from domainadaptor.lab.reports.figures import BLUE, GREY, ReportFigure, panels
from domainadaptor.lab.reports.numbers import number
from domainadaptor.lab.reports.selection import TableRecords
from domainadaptor.lab.reports.tables import PrintedTable, ResultNumber, TableLine, View

__all__ = ["classifier_norms"]

_NAMED = 20  # classes; names of more would cover each other


def classifier_norms(table: TableRecords[MeasurementRecord]) -> View:
    """Show norms by class and column, their correlation with the number of images, and scatter plots."""
    found: dict[str, pd.DataFrame] = {}  # images and norm by class
    for row in table.layout.rows:
        for column, cell in table.cells(row).items():
            if cell.records:
                trained = _without(column, cell.records)
                title = f"{row.label}, {trained}" if len(table.layout.rows) > 1 else trained
                found[title] = _classes(cell.records)
    if not found:
        return View()
    correlations = {title: _correlation(frame) for title, frame in found.items()}
    names = list(dict.fromkeys(str(name) for frame in found.values() for name in frame.index))
    lines = [TableLine(name, tuple(_both(frame, name) for frame in found.values())) for name in names]
    lines.append(TableLine("correlation", tuple(number(value, 2) for value in correlations.values())))
    numbers = [
        ResultNumber("", str(name), title, measure, float(frame.loc[name, key]))
        for title, frame in found.items()
        for name in frame.index
        for measure, key in (("training images", "images"), ("norm", "norm"))
    ]
    numbers += [ResultNumber("", "all classes", title, "correlation", value) for title, value in correlations.items()]
    printed = PrintedTable("class", tuple(found), lines, "Norm of the weights (training images).")
    caption = f"{table.layout.title}: norm of each class's weights by its number of training images."
    return View((printed,), (), (ReportFigure(table.name, caption, partial(_draw, found, correlations)),), numbers)


def _without(column: str, records: Sequence[MeasurementRecord]) -> str:
    """Name a network by the target domain that it was trained without, if it was."""
    sources = [record.run.checkpoint.sources for record in records]
    return f"without {column}" if all(own and column not in own for own in sources) else column


def _classes(records: Sequence[MeasurementRecord]) -> pd.DataFrame:
    """Return means over seeds, class by class."""
    lines = [entry.model_dump() for record in records for entry in record.read(ClassifierNorms).classes]
    return pd.DataFrame(lines).groupby("name", sort=False).mean()


def _correlation(frame: pd.DataFrame) -> float | None:
    varied = len(frame) > 1 and bool((frame.std(ddof=0) > 0).all())
    return float(np.corrcoef(frame["images"], frame["norm"])[0, 1]) if varied else None


def _both(frame: pd.DataFrame, name: str) -> str:
    if name not in frame.index:
        return ""
    return f"{number(float(frame.loc[name, 'norm']), 2)} ({frame.loc[name, 'images']:.0f})"


def _draw(found: Mapping[str, pd.DataFrame], correlations: Mapping[str, float | None]) -> Any:
    figure, shown = panels(len(found), 2, 5.6 if len(found) > 1 else 8, 4.2)
    for panel, (title, frame) in zip(shown, found.items(), strict=True):
        images, norms = frame["images"].to_numpy(), frame["norm"].to_numpy()
        panel.scatter(images, norms, color=BLUE, s=36, zorder=3)
        if len(images) > 1 and np.ptp(images) > 0:
            slope, start = np.polyfit(images, norms, 1)
            ends = np.array([images.min(), images.max()])
            panel.plot(ends, start + slope * ends, color=GREY, linewidth=1.2)
        panel.margins(0.2, 0.2)
        for at, name in enumerate(frame.index) if len(images) <= _NAMED else ():
            above = at == 0 or norms[at] >= np.median(norms)
            panel.annotate(name, (images[at], norms[at]), xytext=(0, 7 if above else -7), textcoords="offset points",
                           ha="center", va="bottom" if above else "top", fontsize=10)  # fmt: skip
        known = correlations[title]
        panel.set_title(title + ("" if known is None else f" (correlation {known:.2f})"), loc="left")
        panel.set(xlabel="training images of the class", ylabel="norm of its weights")
    return figure
