"""Losses and their gradients by the confidence of a prediction."""

from functools import partial

import numpy as np

from domainadaptor.reports.figures.losses import Curve, draw_losses
from domainadaptor.reports.grid import Entry, Fact, Grid, Line, number
from domainadaptor.reports.shows.shown import Ask, Figure, Shown

_AT = (0.5, 0.9, 0.99)  # confidences of the table


def show(ask: Ask) -> Shown:
    """Both as plots, and a few values as a table."""
    curves: dict[str, Curve] = {}
    for record in ask.all_records():
        for entry in record["values"]["curves"]:
            curves.setdefault(
                entry["label"], Curve(entry["label"], *(_array(entry, n) for n in ("confidence", "loss", "gradient")))
            )
    if not curves:
        return Shown(gaps=ask.gaps())
    found = list(curves.values())
    columns = tuple(f"{what} at {at}" for what in ("loss", "gradient") for at in _AT)
    lines = [Line(curve.label, tuple(Entry(number(value, 3)) for value in _values(curve))) for curve in found]
    facts = [
        Fact(curve.label, column, column.split()[0], value)
        for curve in found
        for column, value in zip(columns, _values(curve), strict=True)
    ]
    caption = f"{ask.table.title}: left the shape of the loss, right its gradient, by the confidence of the prediction."
    return Shown(
        (Grid("loss", columns, tuple(lines), "Between measured confidences, a straight line."),),
        (),
        (Figure(ask.name, caption, partial(draw_losses, found)),),
        tuple(facts),
        ask.gaps(),
    )


def _array(entry: dict[str, list[float]], name: str) -> "np.ndarray":
    return np.array(entry.get(name, []), dtype=float)


def _values(curve: Curve) -> list[float | None]:
    return [_interpolated(curve.confidence, line, at) for line in (curve.loss, curve.gradient) for at in _AT]


def _interpolated(confidence: "np.ndarray", line: "np.ndarray", at: float) -> float | None:
    if not len(line) or not confidence.min() <= at <= confidence.max():
        return None
    order = np.argsort(confidence)
    return float(np.interp(at, confidence[order], line[order]))
