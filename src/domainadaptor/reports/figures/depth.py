"""Something by the depth of a network's layers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from domainadaptor.reports.figures.canvas import legend_right, look, panels


@dataclass(frozen=True)
class Trend:
    """One value a layer."""

    label: str
    layers: tuple[str, ...]
    values: "np.ndarray[Any, Any]"
    regression: bool = True

    def line(self) -> tuple[float, float]:
        """Slope, from the first layer at 0 to the last at 1, and start of the least-squares line."""
        slope, start = np.polyfit(np.linspace(0, 1, len(self.values)), self.values, 1)
        return float(slope), float(start)


def draw_trends(found: Mapping[str, Sequence[Trend]], what: str) -> Any:
    """A panel a row, a color a column, and regression lines."""
    figure, shown = panels(len(found), 1, 9.5, 4.2)
    for panel, (title, trends) in zip(shown, found.items(), strict=True):
        for at, trend in enumerate(trends):
            style = look(at)
            depth = np.arange(1, len(trend.values) + 1)
            regression = trend.regression and len(depth) > 1
            panel.plot(depth, trend.values, label=trend.label, linewidth=0.8 if regression else 1.6,
                       alpha=0.75 if regression else 1, markersize=5, **style)  # fmt: skip
            if regression:
                slope, start = trend.line()
                panel.plot(depth[[0, -1]], [start, start + slope], color=style["color"], linewidth=2.4)
        if len(found) > 1:
            panel.set_title(title, loc="left")
        panel.set_ylabel(what)
        panel.xaxis.get_major_locator().set_params(integer=True)
        legend_right(panel, len(trends))
    shown[-1].set_xlabel("depth (number of the norm layer, from the input on)")
    return figure
