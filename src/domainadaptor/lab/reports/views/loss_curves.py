"""Losses and their gradients by the confidence of a prediction, and what temperature makes of sure ones."""

from functools import partial
from typing import Any

import numpy as np

from domainadaptor.lab.reports.cells import Record
from domainadaptor.lab.reports.figures.losses import Curve, Softened, draw_losses, draw_softened
from domainadaptor.lab.reports.grid import Entry, Fact, Grid, Line, number
from domainadaptor.lab.reports.views.shown import Ask, Figure, Shown

_AT = (0.5, 0.9, 0.99)  # confidences of the table

Array = np.ndarray[Any, Any]


def show(ask: Ask) -> Shown:
    """All as plots, and a few values as a table; curves are means over the columns."""
    records = ask.all_records()
    found = _curves(records)
    if not found:
        return Shown(gaps=ask.gaps())
    columns = tuple(f"{what} at {at}" for what in ("loss", "gradient") for at in _AT)
    values = {curve.label: dict(zip(columns, _values(curve), strict=True)) for curve in found}
    columns = tuple(column for column in columns if any(own[column] is not None for own in values.values()))
    lines = [Line(label, tuple(Entry(number(own[column], 3)) for column in columns)) for label, own in values.items()]
    facts = [Fact(label, column, column.split()[0], own[column]) for label, own in values.items() for column in columns]
    over = f", mean over {', '.join(ask.table.columns)}" if len(ask.table.columns) > 1 else ""
    caption = f"{ask.table.title}: left the loss, right its gradient, by the confidence of the prediction{over}."
    figures = [Figure(ask.name, caption, partial(draw_losses, found))]
    if softened := _softened(records):
        caption = (
            f"{ask.table.title}: mean probability of the likeliest class, the second and so on, over {softened.images} "
            f"images with a confidence above 0.9, as predicted and with logits divided by {softened.tau:.1f}, the mean "
            "temperature."
        )
        figures.append(Figure(f"{ask.name}-temperature", caption, partial(draw_softened, softened)))
    return Shown(
        (Grid("loss", columns, tuple(lines), f"Between measured confidences, a straight line{over}."),),
        (),
        tuple(figures),
        tuple(facts),
        ask.gaps(),
    )


def _curves(records: list[Record]) -> list[Curve]:
    """A curve for each loss: the mean of all records' curves, over the confidences that all of them have.

    Records stand at different heights, so that none may weigh more at one confidence than at another.
    """
    entries: dict[str, list[dict[str, list[float]]]] = {}
    for record in records:
        for entry in filter(lambda curve: curve["confidence"], record["values"]["curves"]):
            entries.setdefault(entry["label"], []).append(entry)
    found = []
    for label, own in entries.items():
        known = [np.array(entry["confidence"], dtype=float) for entry in own]
        low, high = max(c.min() for c in known), min(c.max() for c in known)
        every = np.unique(np.concatenate(known))
        shared = every[(every >= low) & (every <= high)]
        means = (_mean(shared, known, [entry.get(name, []) for entry in own]) for name in ("loss", "gradient"))
        found.append(Curve(label, shared, *means))
    return found


def _mean(at: Array, known: list[Array], lines: list[list[float]]) -> Array:
    if not len(at) or not all(lines):
        return np.array([])
    each = []
    for confidence, line in zip(known, lines, strict=True):
        order = np.argsort(confidence)
        each.append(np.interp(at, confidence[order], np.array(line, dtype=float)[order]))
    return np.asarray(np.mean(each, 0))


def _softened(records: list[Record]) -> Softened | None:
    own = [record["values"]["temperature"] for record in records if record["values"].get("temperature")]
    own = [entry for entry in own if entry["images"]]
    if not own:
        return None
    weights = [entry["images"] for entry in own]
    plain, scaled = (np.average([entry[name] for entry in own], 0, weights) for name in ("plain", "scaled"))
    return Softened(plain, scaled, float(np.average([entry["tau"] for entry in own], 0, weights)), sum(weights))


def _values(curve: Curve) -> list[float | None]:
    return [_interpolated(curve.confidence, line, at) for line in (curve.loss, curve.gradient) for at in _AT]


def _interpolated(confidence: Array, line: Array, at: float) -> float | None:
    if not len(line) or not confidence.min() <= at <= confidence.max():
        return None
    return float(np.interp(at, confidence, line))
