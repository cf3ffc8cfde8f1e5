"""Losses and their gradients by the confidence of a prediction, and what temperature makes of sure ones."""

from functools import partial

import numpy as np

from domainadaptor.reports.cells import Record
from domainadaptor.reports.figures.losses import Curve, Softened, draw_losses, draw_softened
from domainadaptor.reports.grid import Entry, Fact, Grid, Line, number
from domainadaptor.reports.shows.shown import Ask, Figure, Shown

_AT = (0.5, 0.9, 0.99)  # confidences of the table
_BINS = 20  # of confidence, in which the columns' curves are averaged


def show(ask: Ask) -> Shown:
    """All as plots, and a few values as a table; curves are means over the columns."""
    records = ask.all_records()
    found = _curves(records)
    if not found:
        return Shown(gaps=ask.gaps())
    columns = tuple(f"{what} at {at}" for what in ("loss", "gradient") for at in _AT)
    lines = [Line(curve.label, tuple(Entry(number(value, 3)) for value in _values(curve))) for curve in found]
    facts = [
        Fact(curve.label, column, column.split()[0], value)
        for curve in found
        for column, value in zip(columns, _values(curve), strict=True)
    ]
    over = f", mean over {', '.join(ask.table.columns)}" if len(ask.table.columns) > 1 else ""
    caption = (
        f"{ask.table.title}: left the shape of the loss, right its gradient, by the confidence of the prediction{over}."
    )
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
    """A curve for each loss: its points of all records, averaged where their confidences are near each other."""
    entries: dict[str, list[dict[str, list[float]]]] = {}
    for record in records:
        for entry in record["values"]["curves"]:
            entries.setdefault(entry["label"], []).append(entry)
    found = []
    for label, own in entries.items():
        confidence, *lines = (np.concatenate([_array(e, n) for e in own]) for n in ("confidence", "loss", "gradient"))
        bins = np.clip((confidence * _BINS).astype(int), 0, _BINS - 1)
        there = np.unique(bins)
        means = [
            np.array([line[bins == at].mean() for at in there]) if len(line) == len(bins) else np.array([])
            for line in (confidence, *lines)
        ]
        found.append(Curve(label, *means))
    return found


def _softened(records: list[Record]) -> Softened | None:
    own = [record["values"]["temperature"] for record in records if record["values"].get("temperature")]
    own = [entry for entry in own if entry["images"]]
    if not own:
        return None
    weights = [entry["images"] for entry in own]
    plain, scaled = (np.average([entry[name] for entry in own], 0, weights) for name in ("plain", "scaled"))
    return Softened(plain, scaled, float(np.average([entry["tau"] for entry in own], 0, weights)), sum(weights))


def _array(entry: dict[str, list[float]], name: str) -> "np.ndarray":
    return np.array(entry.get(name, []), dtype=float)


def _values(curve: Curve) -> list[float | None]:
    return [_interpolated(curve.confidence, line, at) for line in (curve.loss, curve.gradient) for at in _AT]


def _interpolated(confidence: "np.ndarray", line: "np.ndarray", at: float) -> float | None:
    if not len(line) or not confidence.min() <= at <= confidence.max():
        return None
    order = np.argsort(confidence)
    return float(np.interp(at, confidence[order], line[order]))
