"""Which class was taken for which, before and after adapting."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from domainadaptor.lab.reports.figures.canvas import canvas

_WRITTEN = 12  # classes; numbers of more would be too small to read
_NAMED = 30


def draw_confusion(before: "np.ndarray[Any, Any]", after: "np.ndarray[Any, Any]", classes: Sequence[str]) -> Any:
    """Both side by side, in percent of each true class."""
    side = min(6.2, max(4.4, 0.5 * len(classes) + 1.6))
    figure = canvas(2 * side + 0.4, side + 0.5)
    shown = figure.subplots(1, 2, sharey=True)
    for panel, counts, title in zip(shown, (before, after), ("untouched network", "adapted"), strict=True):
        share = _percent(counts)
        image = panel.imshow(share, vmin=0, vmax=100, cmap="Blues", interpolation="nearest")
        right = 100 * np.trace(counts) / max(1, counts.sum())
        panel.set_title(f"{title}: {right:.1f} % right", loc="left")
        panel.grid(visible=False)
        panel.set_xlabel("answer")
        ticks = range(len(classes)) if len(classes) <= _NAMED else []
        names = [name if len(name) <= 16 else f"{name[:15]}…" for name in (classes[at] for at in ticks)]
        upright, size = (90, 8.5) if len(classes) > _WRITTEN else (45, 10.5)
        panel.set_xticks(ticks, names, rotation=upright, ha="right", va="center" if upright == 90 else "top",
                         rotation_mode="anchor", fontsize=size)  # fmt: skip
        panel.set_yticks(ticks, names, fontsize=size)
        if len(classes) <= _WRITTEN:
            _write(panel, share)
    shown[0].set_ylabel("true class")
    figure.colorbar(image, ax=shown, shrink=0.75, label="% of the true class")
    return figure


def _write(panel: Any, share: "np.ndarray[Any, Any]") -> None:
    for (row, column), value in np.ndenumerate(share):
        if value >= 0.5:
            panel.text(column, row, f"{value:.0f}", ha="center", va="center", fontsize=9.5,
                       color="white" if value > 55 else "black")  # fmt: skip


def _percent(counts: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    whole = counts.sum(axis=1, keepdims=True)
    return np.asarray(100 * counts / np.maximum(whole, 1))
