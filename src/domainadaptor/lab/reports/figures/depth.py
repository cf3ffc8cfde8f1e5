"""Something by the depth of a network's layers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from domainadaptor.lab.reports.figures.canvas import legend_right, look, panels, tall_enough

_APART = 50  # times the median: on a straight scale the rest would be a flat line
_SHORTCUTS = ("downsample", "shortcut")  # in names of layers that lie beside others, not behind them
_MANY = 6  # lines; points of more are only dots behind their regression lines


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
    most = max(found.values(), key=len)
    figure, shown = panels(len(found), 1, 9.5, tall_enough(4.2, [trend.label for trend in most]))
    shortcuts = False
    for panel, (title, trends) in zip(shown, found.items(), strict=True):
        for at, trend in enumerate(trends):
            style = look(at)
            depth = np.arange(1, len(trend.values) + 1)
            regression = trend.regression and len(depth) > 1
            crowded = regression and len(trends) > _MANY
            thin, faint, size = (0, 0.4, 3) if crowded else (0.8, 0.75, 5) if regression else (1.6, 1, 5)
            label = None if crowded else trend.label
            panel.plot(depth, trend.values, label=label, linewidth=thin, alpha=faint, markersize=size, **style)
            beside = np.array([any(word in layer for word in _SHORTCUTS) for layer in trend.layers])
            if beside.any():
                empty = style | {"linestyle": "none", "markerfacecolor": "white"}
                panel.plot(depth[beside], trend.values[beside], markersize=size + 1, **empty)
                shortcuts = True
            if regression:
                slope, start = trend.line()
                ends, label = depth[[0, -1]], trend.label if crowded else None
                line = {"color": style["color"], "linestyle": style["linestyle"]}
                panel.plot(ends, [start, start + slope], label=label, linewidth=2.4, **line)
        if len(found) > 1:
            panel.set_title(title, loc="left")
        panel.set_ylabel(what)
        values = np.concatenate([trend.values for trend in trends])
        if values.min() > 0 and values.max() > _APART * np.median(values):
            panel.set_yscale("log")
            panel.yaxis.set_major_formatter("{x:g}")  # formulas are not parsed
        panel.xaxis.get_major_locator().set_params(integer=True)
        legend_right(panel, len(trends))
    low, high = (bound(panel.get_ylim()[end] for panel in shown) for end, bound in ((0, min), (1, max)))
    if len({panel.get_yscale() for panel in shown}) == 1:  # panels can be compared
        for panel in shown:
            panel.set_ylim(low, high)
    hollow = "; hollow: norms of shortcuts" if shortcuts else ""
    shown[-1].set_xlabel(f"depth (number of the norm layer, from the input on{hollow})")
    return figure
