"""Accuracy along the segments of a protocol, in the order in which a method met them."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from domainadaptor.lab.reports.cells import Record, Spread, spread
from domainadaptor.lab.reports.figures.lines import Walk, draw_walks
from domainadaptor.lab.reports.grid import Entry, Fact, Grid, Line, embolden, with_deviation
from domainadaptor.lab.reports.views.details import details_grid
from domainadaptor.lab.reports.views.shown import Ask, Figure, Shown

_UNTOUCHED = "untouched network"


def show(ask: Ask) -> Shown:
    """A table and a line plot for each column of the plan: methods by segments."""
    grids, figures, facts = [], [], []
    for number, column in enumerate(ask.table.columns):
        walks = _walks(ask, column)
        if not walks:
            continue
        segments = max((walk.segments for walk in walks), key=len)
        lines = [
            Line(
                walk.label,
                tuple(Entry(with_deviation(found)) for found in _row(walk, len(segments))),
                walk.group,
            )
            for walk in walks
        ]
        for at in range(len(segments) + 1):
            column_of = [_row(walk, len(segments))[at] for walk in walks]
            lines = embolden(lines, at, [entry.mean if entry else None for entry in column_of])
        caption = f"{column}: accuracy in percent, part by part" if len(ask.table.columns) > 1 else ""
        grids.append(Grid(ask.table.corner, (*segments, "all"), tuple(lines), caption))
        facts += [
            Fact(
                walk.label,
                f"{column}: {at + 1} {segment}",
                "accuracy, %",
                value.mean,
                value.deviation,
                value.seeds,
                walk.group,
            )
            for walk in walks
            for at, (segment, value) in enumerate(zip(walk.segments, walk.values, strict=True))
            if value
        ]
        facts += [
            Fact(walk.label, f"{column}: all", "accuracy, %", all_of.mean, all_of.deviation, all_of.seeds, walk.group)
            for walk in walks
            if (all_of := walk.overall)
        ]
        name = ask.name if number == 0 else f"{ask.name}-{number + 1}"
        title = f"{ask.table.title}: accuracy part by part, {column}; grey is the untouched network."
        fresh = " Dotted verticals: everything was forgotten there." if any(walk.fresh for walk in walks) else ""
        figures.append(Figure(name, title + fresh, partial(draw_walks, walks)))
    return Shown(tuple(grids), details_grid(ask), tuple(figures), tuple(facts), ask.gaps())


def _walks(ask: Ask, column: str) -> list[Walk]:
    walks = []
    untouched: Walk | None = None
    for row in ask.table.rows:
        cell = ask.shelf.cell(row, column)
        runs = [_parts(record) for seed in cell.seeds for record in seed if record.get("segments")]
        if not runs or len({len(run) for run in runs}) > 1:
            continue
        names = [segment["name"] for segment in runs[0]]
        fresh = tuple(at for at, segment in enumerate(runs[0]) if at and segment.get("fresh"))
        plain = all(record["run"].get("method") == "source" for record in ask.records(row))
        walks.append(Walk(row.label, row.group, names, _values(runs, "right"), _overall(runs, "right"), fresh, plain))
        if untouched is None:
            overall = _overall(runs, "source_right")
            untouched = Walk(_UNTOUCHED, "", names, _values(runs, "source_right"), overall, fresh, reference=True)
    return walks if untouched is None or any(walk.reference for walk in walks) else [untouched, *walks]


def _parts(record: Record) -> list[dict[str, Any]]:
    """Its segments; its domains where one segment holds several."""
    if len(record["segments"]) > 1 or len(record["scores"]) == 1:
        return list(record["segments"])
    kept = ("images", "right", "source_right")
    return [{"name": domain} | {key: score[key] for key in kept} for domain, score in record["scores"].items()]


def _values(runs: Sequence[Sequence[Record]], count: str) -> list[Spread | None]:
    """Over the records of a cell, segment by segment."""
    return [
        spread([100 * run[at][count] / run[at]["images"] for run in runs if run[at]["images"]])
        for at in range(len(runs[0]))
    ]


def _overall(runs: Sequence[Sequence[Record]], count: str) -> Spread | None:
    totals = [(sum(segment[count] for segment in run), sum(segment["images"] for segment in run)) for run in runs]
    return spread([100 * right / images for right, images in totals if images])


def _row(walk: Walk, segments: int) -> list[Spread | None]:
    """A value for each segment, none for those that the walk has not, and the one over all."""
    return [*walk.values, *[None] * (segments - len(walk.values)), walk.overall]
