"""Losses and gradients by confidence, and probabilities under a temperature."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from domainadaptor.lab.reports.figures.canvas import BLUE, ORANGE, canvas, look

_RANKS = 10  # classes that are shown


@dataclass(frozen=True)
class Curve:
    """One loss."""

    label: str
    confidence: "np.ndarray[Any, Any]"
    loss: "np.ndarray[Any, Any]"
    gradient: "np.ndarray[Any, Any]"


@dataclass(frozen=True)
class Softened:
    """Mean probabilities of sure predictions, the likeliest class first, before and after a temperature."""

    plain: "np.ndarray[Any, Any]"
    scaled: "np.ndarray[Any, Any]"
    tau: float
    images: int


def draw_softened(found: Softened) -> Any:
    """Two bars a rank."""
    shown = min(len(found.plain), _RANKS)
    figure = canvas(8.5, 3.8)
    panel = figure.subplots()
    for shift, values, label, color in (
        (-0.2, found.plain, "as predicted", BLUE),
        (0.2, found.scaled, f"logits divided by {found.tau:.1f}", ORANGE),
    ):
        places = [rank + shift for rank in range(shown)]
        bars = panel.bar(places, values[:shown], 0.38, label=label, color=color)
        panel.bar_label(bars, [f"{value:.2f}" for value in values[:shown]], fontsize=9.5, padding=2)
    panel.set_xticks(range(shown), ["likeliest", *(f"{rank}." for rank in range(2, shown + 1))])
    panel.set_xlabel("classes by their probability")
    panel.set_ylabel("mean probability")
    panel.set_ylim(0, 1.12)
    panel.grid(axis="x", visible=False)
    panel.legend(loc="upper right")
    return figure


def draw_losses(curves: Sequence[Curve]) -> Any:
    """The loss on the left, its gradient on the right, one legend for both."""
    figure = canvas(11, 4.4)
    left, right = figure.subplots(1, 2)
    for panel, title, axis in (
        (left, "loss", "loss, in parts of its largest value"),
        (right, "gradient", "length of the gradient"),
    ):
        for at, curve in enumerate(curves):
            values = _scaled(curve.loss) if panel is left else curve.gradient
            if len(values):
                style = look(at) | {"marker": ""}
                panel.plot(
                    curve.confidence, values, label=curve.label if panel is left else None, linewidth=1.8, **style
                )
        panel.set_title(title, loc="left")
        panel.set_xlabel("confidence of the prediction")
        panel.set_ylabel(axis)
    figure.legend(loc="outside right center")
    return figure


def _scaled(values: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """One of them is fifty times another: by its largest each keeps its sign and how much of it is left.

    The table has their values.
    """
    largest = np.abs(values).max(initial=0.0)
    return np.asarray(values / largest) if largest else np.zeros_like(values)
