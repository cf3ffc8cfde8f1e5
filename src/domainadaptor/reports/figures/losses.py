"""Losses and gradients by confidence."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from domainadaptor.reports.figures.canvas import canvas, look


@dataclass(frozen=True)
class Curve:
    """One loss."""

    label: str
    confidence: "np.ndarray[Any, Any]"
    loss: "np.ndarray[Any, Any]"
    gradient: "np.ndarray[Any, Any]"


def draw_losses(curves: Sequence[Curve]) -> Any:
    """The shape of the loss on the left, its gradient on the right, one legend for both."""
    figure = canvas(11, 4.4)
    left, right = figure.subplots(1, 2)
    for panel, title in ((left, "loss, from its least (0) to its most (1)"), (right, "gradient")):
        for at, curve in enumerate(curves):
            values = _scaled(curve.loss) if panel is left else curve.gradient
            if len(values):
                style = look(at) | {"marker": ""}
                panel.plot(
                    curve.confidence, values, label=curve.label if panel is left else None, linewidth=1.8, **style
                )
        panel.set_title(title, loc="left")
        panel.set_xlabel("confidence of the prediction")
    figure.legend(loc="outside right center")
    return figure


def _scaled(values: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """One of them is fifty times another: their shapes can be compared, the table has their values."""
    if not len(values) or np.ptp(values) == 0:
        return np.zeros_like(values)
    return np.asarray((values - values.min()) / np.ptp(values))
