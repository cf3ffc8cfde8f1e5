"""Accuracy along a setting: a table and a curve per row."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from domainadaptor.lab.records.runs import EvaluationRecord, RunSettings
from domainadaptor.lab.reports.figures import GREY, ReportFigure, legend_right, look, panels, tall_enough, wrapped
from domainadaptor.lab.reports.numbers import as_number
from domainadaptor.lab.reports.selection import TableRecords
from domainadaptor.lab.reports.tables import ResultNumber
from domainadaptor.lab.reports.views import View
from domainadaptor.lab.reports.views.accuracy import accuracy

__all__ = ["accuracy_curve"]

_DIRECT = ("batch_size", "images")  # settings of a run that are not options
_WORDS = {"subset": "images per subset", "threshold": "confidence threshold"}  # where a name says too little
_PAPER_LINES = 5  # with more rows than this, the paper's lines would hide ours
_DASHED = {"linestyle": (0, (2, 2)), "linewidth": 1}


def accuracy_curve(table: TableRecords[EvaluationRecord]) -> View:
    """Show accuracies, and a line per row over the columns as numbers."""
    view = accuracy(table)
    columns = table.layout.columns
    numbers = [found for found in view.numbers if found.value is not None and found.column in columns]
    if not numbers:
        return view
    axis = axis_of(table)
    paper = " Thin dashed lines are the paper's." if any(found.paper is not None for found in numbers) else ""
    bars = " Bars are one standard deviation over seeds." if any(found.deviation for found in numbers) else ""
    caption = f"{table.layout.title}: accuracy by {axis or 'column'}.{bars}{paper}"
    return replace(view, figures=(ReportFigure(table.name, caption, partial(_draw, numbers, columns, axis)),))


def axis_of(table: TableRecords[EvaluationRecord]) -> str:
    """Return the setting whose value names the column in all records, in words; "" if there is none.

    A row that is the same in every column, to compare others with, is ignored.
    """
    shared: set[str] | None = None
    for row in table.layout.rows:
        fits = [
            {name for name, setting in _settings(record.run) if setting == value}
            for column, cell in table.cells(row).items()
            if (value := as_number(column)) is not None
            for record in cell.records
        ]
        if fits and (own := set.intersection(*fits)):
            shared = own if shared is None else shared & own
    names = sorted(shared or (), key=lambda name: (name not in _DIRECT, name))
    return _WORDS.get(names[0], names[0].replace("_", " ")) if names else ""


def _settings(run: RunSettings) -> Iterator[tuple[str, Any]]:
    yield from (("batch_size", run.batch_size), ("images", run.images), ("domains_per_stream", len(run.domains)))
    for options in (run.options, run.protocol_options, run.data_options):
        yield from options.items()


def _draw(numbers: Sequence[ResultNumber], columns: Sequence[str], axis: str) -> Any:
    """Draw a line per row over evenly spaced columns; columns that are words are not connected."""
    rows = list(dict.fromkeys((found.group, found.row) for found in numbers))
    names = [row for _, row in rows]
    labels = [wrapped(f"{group}: {row}" if names.count(row) > 1 else row, 26) for group, row in rows]
    figure, (panel,) = panels(1, 1, 10, tall_enough(4.6, [*labels, "the paper"]))
    with_paper = len(rows) <= _PAPER_LINES and any(found.paper is not None for found in numbers)
    for at, (place, label) in enumerate(zip(rows, labels, strict=True)):
        own = [found for found in numbers if (found.group, found.row) == place]
        line = [found for found in own if as_number(found.column) is not None]
        words = [found for found in own if found not in line]
        for part, style in ((line, look(at)), (words, look(at) | {"linestyle": "none"})):
            x, y = [columns.index(found.column) for found in part], [found.value for found in part]
            spread = [found.deviation or 0 for found in part] if any(found.deviation for found in part) else None
            name = label if part is line or not line else None
            if part:
                panel.errorbar(x, y, spread, label=name, capsize=3, markersize=6, linewidth=1.6, **style)
        if with_paper:
            paper = [(columns.index(found.column), found.paper) for found in line if found.paper is not None]
            panel.plot([x for x, _ in paper], [y for _, y in paper], color=look(at)["color"], **_DASHED)
    if with_paper:
        panel.plot([], [], color=GREY, label="the paper", **_DASHED)
    panel.set_xticks(range(len(columns)), columns)
    panel.set_xlabel(axis)
    panel.set_ylabel("accuracy, %")
    legend_right(panel)
    return figure
