"""Accuracy along something: a setting, or the segments of a protocol."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from domainadaptor.lab.reports.cells import Spread
from domainadaptor.lab.reports.figures.canvas import GREY, canvas, folded, legend_right, look, tall_enough
from domainadaptor.lab.reports.grid import Fact
from domainadaptor.lab.reports.plans import as_number

_LOGARITHMIC = 20  # a larger factor between the ends makes the axis logarithmic
_CLOSEST = 0.045  # of the axis: numbers that are nearer to each other would overlap
_LONG = 30  # segments, from which on bars of deviations would hide the lines
_PAPER_LINES = 5  # with more rows than this, the paper's lines would hide ours


@dataclass(frozen=True)
class Walk:
    """A method on its way through segments."""

    label: str
    group: str
    segments: Sequence[str]
    values: Sequence[Spread | None]
    overall: Spread | None = None  # over all segments' images
    fresh: tuple[int, ...] = ()  # segments before which everything was forgotten
    reference: bool = False


def draw_curves(facts: Sequence[Fact], columns: Sequence[str], axis: str) -> Any:
    """A line a row over the columns as numbers; columns that are words stand beside them, unconnected."""
    numbers = {column: value for column in columns if (value := as_number(column)) is not None}
    places, logarithmic = _places(numbers, [column for column in columns if column not in numbers])
    rows = list(dict.fromkeys((fact.group, fact.row) for fact in facts))
    labels = [folded(f"{group}: {row}" if _shared(row, rows) else row, 26) for group, row in rows]
    figure = canvas(10, tall_enough(4.6, [*labels, "the paper"]))
    panel = figure.subplots()
    for at, ((group, row), label) in enumerate(zip(rows, labels, strict=True)):
        own = [fact for fact in facts if (fact.group, fact.row) == (group, row)]
        style = look(at)
        _curve(panel, [f for f in own if f.column in numbers], places, label, style)
        _curve(panel, [f for f in own if f.column not in numbers], places, None, style | {"linestyle": "none"})
        paper = [fact for fact in own if fact.paper is not None and fact.column in numbers]
        if paper and len(rows) <= _PAPER_LINES:
            panel.plot(
                [places[f.column] for f in paper], [f.paper for f in paper],
                color=style["color"], linestyle=(0, (2, 2)), linewidth=1,
            )  # fmt: skip
    if len(rows) <= _PAPER_LINES and any(fact.paper is not None for fact in facts):
        panel.plot([], [], color=GREY, linestyle=(0, (2, 2)), linewidth=1, label="the paper")
    _ticks(panel, places)
    panel.set_xlabel((axis or "") + (" (logarithmic)" if logarithmic else ""))
    panel.set_ylabel("accuracy, %")
    legend_right(panel, len(rows))
    return figure


def draw_walks(walks: Sequence[Walk]) -> Any:
    """A line a method from segment to segment."""
    segments = max((walk.segments for walk in walks), key=len)
    labels = [folded(walk.label, 26) for walk in walks]
    figure = canvas(10.5, tall_enough(4.6, labels))
    panel = figure.subplots()
    long = len(segments) > _LONG
    for fresh in sorted({at for walk in walks for at in walk.fresh}) if not long else []:
        panel.axvline(fresh - 0.5, color=GREY, linestyle=":", linewidth=1)
    shown = 0
    for walk, label in zip(walks, labels, strict=True):
        style = {"color": GREY, "marker": "" if len(segments) > 1 else "_"} if walk.reference else look(shown)
        shown += not walk.reference
        there = [(at, value) for at, value in enumerate(walk.values) if value]
        panel.errorbar(
            [at for at, _ in there], [value.mean for _, value in there],
            [v.deviation or 0 for _, v in there] if not long and any(v.deviation for _, v in there) else None,
            label=label, capsize=3, markersize=3 if long else 6, linewidth=1.6, **style,
        )  # fmt: skip
    step = math.ceil(len(segments) / 16)
    ticks = range(0, len(segments), step)
    upright = max(len(segments[at]) for at in ticks) * len(ticks) <= 80
    panel.set_xticks(ticks, [folded(segments[at], 18) for at in ticks], rotation=0 if upright else 40,
                     ha="center" if upright else "right", rotation_mode="anchor")  # fmt: skip
    panel.set_ylabel("accuracy, %")
    legend_right(panel, len(walks))
    return figure


def _shared(row: str, rows: Sequence[tuple[str, str]]) -> bool:
    """Whether several groups have a row of that name."""
    return [name for _, name in rows].count(row) > 1


def _curve(
    panel: Any, facts: Sequence[Fact], places: dict[str, float], label: str | None, style: dict[str, Any]
) -> None:
    if facts:
        panel.errorbar(
            [places[fact.column] for fact in facts], [fact.value for fact in facts],
            [f.deviation or 0 for f in facts] if any(f.deviation for f in facts) else None,
            label=label, capsize=3, markersize=6, linewidth=1.6, **style,
        )  # fmt: skip
    elif label is not None:
        panel.plot([], [], label=label, **style)


def _places(numbers: dict[str, float], words: Sequence[str]) -> tuple[dict[str, float], bool]:
    """Where each column stands on an axis that is straight on paper."""
    low, high = min(numbers.values(), default=0.0), max(numbers.values(), default=0.0)
    logarithmic = low > 0 and high / low > _LOGARITHMIC
    places = {column: math.log(value) if logarithmic else value for column, value in numbers.items()}
    ends = (min(places.values(), default=0.0), max(places.values(), default=0.0))
    step = (ends[1] - ends[0]) / max(1, len(places) - 1) or 1.0
    return places | {word: ends[1] + step * (at + 1) for at, word in enumerate(words)}, logarithmic


def _ticks(panel: Any, places: dict[str, float]) -> None:
    """Every column has a tick; its name is left out where it would touch the next one, so that the last has one."""
    whole = (max(places.values()) - min(places.values())) or 1.0
    labels: list[str] = []
    after = math.inf
    for column, place in sorted(places.items(), key=lambda entry: -entry[1]):
        room = _CLOSEST * max(1.0, len(column) / 4) * whole
        near = after - place < room
        labels.append("" if near else column)
        after = after if near else place
    panel.set_xticks(sorted(places.values()), labels[::-1])
