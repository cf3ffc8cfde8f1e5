"""Time per batch, compared with the source model on the same batches."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from domainadaptor.lab.records.plans import PlannedRow
from domainadaptor.lab.records.runs import EvaluationRecord
from domainadaptor.lab.reports.counts import accuracy, milliseconds, relative_time, source_milliseconds
from domainadaptor.lab.reports.figures import BLUE, GREY, ReportFigure, panels, wrapped
from domainadaptor.lab.reports.numbers import Estimate, estimate, number, with_deviation
from domainadaptor.lab.reports.paper import ACCURACY, MILLISECONDS, paper_value
from domainadaptor.lab.reports.selection import CellRecords, NumberOf, TableRecords
from domainadaptor.lab.reports.tables import PrintedTable, ResultNumber, TableLine, embolden
from domainadaptor.lab.reports.views import View

__all__ = ["time"]

_MEASURES: dict[str, NumberOf[EvaluationRecord]] = {
    "ms per batch": milliseconds,
    "source model, ms": source_milliseconds,
    "relative time": relative_time,
    "accuracy, %": accuracy,
}
_PAPER = ("paper, ms", "paper, relative time", "paper, accuracy, %")
_SOURCE = "none"  # what the paper's table calls the source model


def time(table: TableRecords[EvaluationRecord]) -> View:
    """Show milliseconds, relative time and the paper's numbers per row and column, and relative times as bars."""
    plan = table.layout
    lines, ratios, numbers, bars = [], [], [], []
    for row in plan.rows:
        for column, cell in table.cells(row).items():
            if not cell.seeds and not cell.gaps:
                continue
            label = f"{row.label}, {column}" if len(plan.columns) > 1 else row.label
            ours = {name: estimate(cell.values(measure)) for name, measure in _MEASURES.items()}
            paper = _paper(table, row, column)
            lines.append(TableLine(label, (*_texts(cell, ours), *(number(paper[n], d) for n, d in _DIGITS)), row.group))
            found = ours["relative time"]
            adapts = any(record.run.method != "source" for record in cell.records)
            ratios.append(found.mean if found and adapts else None)
            numbers += [_result(row, column, cell, name, ours[name], paper.get(name)) for name in _MEASURES]
            if found:
                bars.append((label, found, ours["ms per batch"]))
    lines = embolden(lines, 2, ratios, lowest=True)
    caption = "Relative time: time per batch divided by that of the source model on the same batches of the same run."
    printed = PrintedTable(plan.corner, (*_MEASURES, *_PAPER), tuple(lines), caption).without_empty_columns()
    if len(printed.columns) > len(_MEASURES):
        caption += " The paper's times are for an RTX 2080: compare ratios, not milliseconds."
    printed = PrintedTable(printed.corner, printed.columns, printed.lines, caption)
    drawing = ReportFigure(
        table.name, f"{plan.title}: time per batch, relative to the source model.", partial(_draw, bars)
    )
    return View((printed,), figures=(drawing,) if bars else (), numbers=tuple(numbers))


_DIGITS = (("ms per batch", 1), ("relative time", 2), ("accuracy, %", 1))  # of the paper's columns


def _texts(cell: CellRecords[EvaluationRecord], ours: dict[str, Estimate | None]) -> tuple[str, ...]:
    if not cell.seeds:
        return ("failed" if any(gap.failed for gap in cell.gaps) else "missing", "", "", "")
    return tuple(with_deviation(found, 2 if name == "relative time" else 1) for name, found in ours.items())


def _paper(table: TableRecords[EvaluationRecord], row: PlannedRow, column: str) -> dict[str, float | None]:
    time = paper_value(table.layout.paper, row.paper, column, MILLISECONDS)
    source = paper_value(table.layout.paper, _SOURCE, column, MILLISECONDS)
    reached = paper_value(table.layout.paper, row.paper, column, ACCURACY)
    return {
        "ms per batch": time.mean if time else None,
        "relative time": time.mean / source.mean if time and source else None,
        "accuracy, %": reached.mean if reached else None,
    }


def _result(
    row: PlannedRow, column: str, cell: CellRecords[EvaluationRecord], name: str, found: Estimate | None,
    paper: float | None,
) -> ResultNumber:  # fmt: skip
    reason = "; ".join(dict.fromkeys(gap.failed for gap in cell.gaps if gap.failed))
    state = "done" if cell.complete else "partial" if cell.seeds else "failed" if reason else "missing"
    mean, deviation, seeds = (found.mean, found.deviation, found.seeds) if found else (None, None, None)
    return ResultNumber(row.group, row.label, column, name, mean, deviation, seeds, paper, None, state, reason)


def _draw(bars: Sequence[tuple[str, Estimate, Estimate | None]]) -> Any:
    figure, (panel,) = panels(1, 1, 9, 0.42 * len(bars) + 1.2)
    places = range(len(bars))
    ratios, spreads = ([getattr(ratio, name) or 0 for _, ratio, _ in bars] for name in ("mean", "deviation"))
    panel.barh(places, ratios, 0.7, xerr=spreads if any(spreads) else None, color=BLUE, ecolor="#444444", capsize=3)
    widest = max(ratio + spread for ratio, spread in zip(ratios, spreads, strict=True))
    for place, (_, ratio, time), spread in zip(places, bars, spreads, strict=True):
        text = f"{ratio.mean:.2f}x" + (f", {time.mean:.1f} ms" if time else "")
        panel.text(ratio.mean + spread + 0.015 * widest, place, text, va="center", fontsize=10.5)
    panel.axvline(1, color=GREY, linestyle=":", linewidth=1.2)
    panel.set_yticks(places, [wrapped(label, 34) for label, _, _ in bars])
    panel.set_xlim(0, 1.28 * max(widest, 1))
    panel.set_xlabel("time per batch, relative to the source model (dotted line: 1)")
    panel.grid(axis="y", visible=False)
    panel.invert_yaxis()
    return figure
