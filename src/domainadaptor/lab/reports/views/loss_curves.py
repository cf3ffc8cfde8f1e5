"""Losses and their gradients by confidence, and what temperature does to confident predictions."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from domainadaptor.lab.records.measurements import LossCurve, LossCurves, TemperatureEffect
from domainadaptor.lab.records.runs import MeasurementRecord
from domainadaptor.lab.reports.counts import Array
from domainadaptor.lab.reports.figures import BLUE, ORANGE, ReportFigure, look, panels
from domainadaptor.lab.reports.numbers import number
from domainadaptor.lab.reports.selection import TableRecords
from domainadaptor.lab.reports.tables import PrintedTable, ResultNumber, TableLine, View

__all__ = ["loss_curves"]

_AT = (0.5, 0.9, 0.99)  # confidences of the table
_RANKS = 10  # classes in the bar chart


def loss_curves(table: TableRecords[MeasurementRecord]) -> View:
    """Show all curves as plots and a few values as a table; curves are means over the columns."""
    plan = table.layout
    found = [record.read(LossCurves) for record in table.all_records()]
    curves = _curves([curve for own in found for curve in own.curves])
    if not curves:
        return View()
    columns = [
        (name, at) for name in ("loss", "gradient") for at in _AT if any(_covers(c, at) for c in curves.values())
    ]
    titles = tuple(f"{name} at {at}" for name, at in columns)
    values = {label: [_value(curve, *column) for column in columns] for label, curve in curves.items()}
    lines = [TableLine(label, tuple(number(value, 3) for value in own)) for label, own in values.items()]
    numbers = [
        ResultNumber("", label, title, name, value)
        for label, own in values.items()
        for title, (name, _), value in zip(titles, columns, own, strict=True)
    ]
    over = f", mean over {', '.join(plan.columns)}" if len(plan.columns) > 1 else ""
    caption = f"{plan.title}: loss (left) and norm of its gradient (right) by the confidence of the prediction{over}."
    figures = [ReportFigure(table.name, caption, partial(_draw_losses, curves))]
    if effect := _mean_effect([own.temperature for own in found if own.temperature.images]):
        caption = (
            f"{plan.title}: mean probability of the most likely class, the second and so on, over {effect.images} "
            f"images with a confidence above 0.9, as predicted and with logits divided by {effect.tau:.1f}, the mean "
            "temperature."
        )
        figures.append(ReportFigure(f"{table.name}-temperature", caption, partial(_draw_effect, effect)))
    note = f"Linear interpolation between measured confidences{over}."
    return View((PrintedTable("loss", titles, lines, note),), (), figures, numbers)


def _covers(curve: pd.DataFrame, confidence: float) -> bool:
    return bool(len(curve) and curve.index.min() <= confidence <= curve.index.max())


def _value(curve: pd.DataFrame, name: str, confidence: float) -> float | None:
    """Return a value between measured confidences; None outside of them."""
    return float(np.interp(confidence, curve.index, curve[name])) if _covers(curve, confidence) else None


def _curves(entries: Sequence[LossCurve]) -> dict[str, pd.DataFrame]:
    """Return the mean loss and gradient by confidence for each label, over the confidences that all its records cover.

    Losses of different records differ in height, so each must weigh the same at every confidence.
    """
    found = {}
    for label in dict.fromkeys(entry.label for entry in entries if entry.confidence):
        own = [entry for entry in entries if entry.label == label and entry.confidence]
        known = [np.array(entry.confidence) for entry in own]
        low, high = max(c.min() for c in known), min(c.max() for c in known)
        every = np.unique(np.concatenate(known))
        shared = every[(every >= low) & (every <= high)]
        means = {name: _mean(shared, known, [getattr(entry, name) for entry in own]) for name in ("loss", "gradient")}
        found[label] = pd.DataFrame(means, index=shared)
    return found


def _mean(at: Array, known: list[Array], lines: list[tuple[float, ...]]) -> Array:
    orders = [np.argsort(confidence) for confidence in known]
    each = [np.interp(at, c[o], np.array(line)[o]) for c, o, line in zip(known, orders, lines, strict=True)]
    return np.asarray(np.mean(each, 0))


def _mean_effect(own: Sequence[TemperatureEffect]) -> TemperatureEffect | None:
    if len({len(entry.plain) for entry in own}) != 1:  # none, or of different numbers of classes
        return None
    weights = [entry.images for entry in own]
    plain, scaled = (np.average([getattr(entry, name) for entry in own], 0, weights) for name in ("plain", "scaled"))
    tau = float(np.average([entry.tau for entry in own], 0, weights))
    return TemperatureEffect(tau=tau, images=sum(weights), plain=tuple(plain.tolist()), scaled=tuple(scaled.tolist()))


def _draw_effect(found: TemperatureEffect) -> Any:
    figure, (panel,) = panels(1, 1, 8.5, 3.8)
    shown = min(len(found.plain), _RANKS)
    for shift, values, label, color in (
        (-0.2, found.plain, "as predicted", BLUE),
        (0.2, found.scaled, f"logits divided by {found.tau:.1f}", ORANGE),
    ):
        bars = panel.bar([rank + shift for rank in range(shown)], values[:shown], 0.38, label=label, color=color)
        panel.bar_label(bars, [f"{value:.2f}" for value in values[:shown]], fontsize=9.5, padding=2)
    panel.set_xticks(range(shown), ["most likely", *(f"{rank}." for rank in range(2, shown + 1))])
    panel.set(xlabel="classes by their probability", ylabel="mean probability", ylim=(0, 1.12))
    panel.grid(axis="x", visible=False)
    panel.legend(loc="upper right")
    return figure


def _draw_losses(curves: Mapping[str, pd.DataFrame]) -> Any:
    figure, (left, right) = panels(2, 2, 5.5, 4.4)
    for at, (label, curve) in enumerate(curves.items()):
        style = look(at) | {"marker": "", "linewidth": 1.8}
        loss = curve["loss"].to_numpy()
        # One loss is fifty times another: divided by its maximum each keeps its sign and shape.
        left.plot(curve.index, loss / (np.abs(loss).max(initial=0.0) or 1.0), label=label, **style)
        right.plot(curve.index, curve["gradient"], **style)
    for panel, title, axis in (
        (left, "loss", "loss, divided by its maximum"),
        (right, "gradient", "norm of the gradient"),
    ):
        panel.set_title(title, loc="left")
        panel.set(xlabel="confidence of the prediction", ylabel=axis)
    figure.legend(loc="outside right center")
    return figure
