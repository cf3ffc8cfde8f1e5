"""Norms of the classifier's weights against the number of training images per class."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from domainadaptor.lab.records.measurements import ClassifierNorms
from domainadaptor.lab.records.runs import MeasurementRecord
from domainadaptor.lab.reports.figures import BLUE, GREY, ReportFigure, panels
from domainadaptor.lab.reports.numbers import number
from domainadaptor.lab.reports.selection import TableRecords
from domainadaptor.lab.reports.tables import PrintedTable, ResultNumber, TableLine
from domainadaptor.lab.reports.views import View

__all__ = ["classifier_norms"]

_NAMED = 20  # classes; names of more would cover each other


@dataclass(frozen=True)
class _Classes:
    """The classes of one network: a frame with images and norm by class."""

    title: str
    frame: pd.DataFrame
    correlation: float | None


def classifier_norms(table: TableRecords[MeasurementRecord]) -> View:
    """Show norms by class and column, their correlation with the number of images, and scatter plots."""
    found = []
    for row in table.layout.rows:
        for column, cell in table.cells(row).items():
            if cell.records:
                trained = _without(column, cell.records)
                title = f"{row.label}, {trained}" if len(table.layout.rows) > 1 else trained
                found.append(_classes(title, cell.records))
    if not found:
        return View()
    names = list(dict.fromkeys(name for own in found for name in own.frame.index))
    lines = [TableLine(name, tuple(_both(own, name) for own in found)) for name in names]
    lines.append(TableLine("correlation", tuple(number(own.correlation, 2) for own in found)))
    numbers = [
        ResultNumber("", str(name), own.title, measure, float(own.frame.loc[name, key]))
        for own in found
        for name in own.frame.index
        for measure, key in (("training images", "images"), ("norm", "norm"))
    ]
    numbers += [ResultNumber("", "all classes", own.title, "correlation", own.correlation) for own in found]
    printed = PrintedTable(
        "class", tuple(own.title for own in found), tuple(lines), "Norm of the weights (training images)."
    )
    caption = f"{table.layout.title}: norm of each class's weights by its number of training images."
    return View((printed,), figures=(ReportFigure(table.name, caption, partial(_draw, found)),), numbers=tuple(numbers))


def _without(column: str, records: Sequence[MeasurementRecord]) -> str:
    """Name a network by the target domain that it was trained without, if it was."""
    sources = [record.run.checkpoint.sources for record in records]
    return f"without {column}" if all(own and column not in own for own in sources) else column


def _classes(title: str, records: Sequence[MeasurementRecord]) -> _Classes:
    """Return means over seeds, class by class."""
    lines = [entry.model_dump() for record in records for entry in record.read(ClassifierNorms).classes]
    frame = pd.DataFrame(lines).groupby("name", sort=False).mean()
    varied = len(frame) > 1 and bool((frame.std(ddof=0) > 0).all())
    return _Classes(title, frame, float(np.corrcoef(frame["images"], frame["norm"])[0, 1]) if varied else None)


def _both(own: _Classes, name: str) -> str:
    if name not in own.frame.index:
        return ""
    return f"{number(float(own.frame.loc[name, 'norm']), 2)} ({own.frame.loc[name, 'images']:.0f})"


def _draw(found: Sequence[_Classes]) -> Any:
    figure, shown = panels(len(found), 2, 5.6 if len(found) > 1 else 8, 4.2)
    for panel, own in zip(shown, found, strict=True):
        images, norms = own.frame["images"].to_numpy(), own.frame["norm"].to_numpy()
        panel.scatter(images, norms, color=BLUE, s=36, zorder=3)
        if len(images) > 1 and np.ptp(images) > 0:
            slope, start = np.polyfit(images, norms, 1)
            ends = np.array([images.min(), images.max()])
            panel.plot(ends, start + slope * ends, color=GREY, linewidth=1.2)
        panel.margins(0.2, 0.2)
        for at, name in enumerate(own.frame.index) if len(images) <= _NAMED else ():
            above = at == 0 or norms[at] >= np.median(norms)
            panel.annotate(name, (images[at], norms[at]), xytext=(0, 7 if above else -7), textcoords="offset points",
                           ha="center", va="bottom" if above else "top", fontsize=10)  # fmt: skip
        said = "" if own.correlation is None else f" (correlation {own.correlation:.2f})"
        panel.set_title(f"{own.title}{said}", loc="left")
        panel.set_xlabel("training images of the class")
        panel.set_ylabel("norm of its weights")
    return figure
