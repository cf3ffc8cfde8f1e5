"""Norms of the classifier's weights against the number of training images per class."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from domainadaptor.lab.records.measurements import ClassifierNorms
from domainadaptor.lab.records.runs import MeasurementRecord
from domainadaptor.lab.reports.figures import BLUE, ReportFigure, panels
from domainadaptor.lab.reports.numbers import number
from domainadaptor.lab.reports.selection import TableRecords
from domainadaptor.lab.reports.tables import PrintedTable, ResultNumber, TableLine, View

__all__ = ["classifier_norms"]

_NAMED = 20  # classes; names of more would cover each other


def classifier_norms(table: TableRecords[MeasurementRecord]) -> View:
    """Show norms by class and column, and their correlation with the number of images."""
    found: dict[str, pd.DataFrame] = {}  # images and norm by class, means over seeds
    for row in table.layout.rows:
        for column, cell in table.cells(row).items():
            if cell.records:
                trained = _without(column, cell.records)
                title = f"{row.label}, {trained}" if len(table.layout.rows) > 1 else trained
                lines = [entry.model_dump() for r in cell.records for entry in r.read(ClassifierNorms).classes]
                found[title] = pd.DataFrame(lines).groupby("name", sort=False).mean()
    if not found:
        return View()
    correlations = {title: _correlation(frame) for title, frame in found.items()}
    names = list(dict.fromkeys(name for frame in found.values() for name in frame.index))
    printed = [TableLine(name, tuple(_both(frame, name) for frame in found.values())) for name in names]
    printed.append(TableLine("correlation", tuple(number(value, 2) for value in correlations.values())))
    numbers = [
        ResultNumber("", name, title, measure, float(frame.loc[name, key]))
        for title, frame in found.items()
        for name in frame.index
        for measure, key in (("training images", "images"), ("norm", "norm"))
    ]
    numbers += [ResultNumber("", "all classes", title, "correlation", value) for title, value in correlations.items()]
    text = PrintedTable("class", tuple(found), printed, "Norm of the weights (training images).")
    caption = f"{table.layout.title}: norm of each class's weights by its number of training images."
    return View((text,), (), (ReportFigure(table.name, caption, partial(_draw, found)),), numbers)


def _without(column: str, records: Sequence[MeasurementRecord]) -> str:
    """Name a network by the target domain that it was trained without, if it was."""
    sources = [record.run.checkpoint.sources for record in records]
    return f"without {column}" if all(own and column not in own for own in sources) else column


def _correlation(frame: pd.DataFrame) -> float | None:
    varied = len(frame) > 1 and (frame.std(ddof=0) > 0).all()
    return float(np.corrcoef(frame["images"], frame["norm"])[0, 1]) if varied else None


def _both(frame: pd.DataFrame, name: str) -> str:
    if name not in frame.index:
        return ""
    return f"{number(float(frame.loc[name, 'norm']), 2)} ({frame.loc[name, 'images']:.0f})"


def _draw(found: Mapping[str, pd.DataFrame]) -> Any:
    figure, shown = panels(len(found), 2, 5.6, 4.2)
    for panel, (title, frame) in zip(shown, found.items(), strict=True):
        panel.scatter(frame["images"], frame["norm"], color=BLUE, s=36, zorder=3)
        for name, place in frame[["images", "norm"]].iterrows() if len(frame) <= _NAMED else ():
            panel.annotate(name, place, xytext=(0, 7), textcoords="offset points", ha="center", fontsize=10)
        panel.margins(0.2)
        panel.set_title(title, loc="left")
        panel.set(xlabel="training images of the class", ylabel="norm of its weights")
    return figure
