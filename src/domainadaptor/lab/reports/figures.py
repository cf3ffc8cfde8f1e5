"""What all figures share: colors that color-blind people can tell apart, readable text, reproducible files."""

import io
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

# Okabe and Ito's colors; yellow last, since it is faint on white.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#000000", "#F0E442")
BLUE, VERMILLION, GREEN, ORANGE, *_ = COLORS
GREY = "#767676"
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", (0, (6, 1.5)), (0, (3, 1, 1, 1)), (0, (1, 1)))
_APART = 50  # times the median: such values need a logarithmic axis
_STYLE = {
    "font.size": 11, "axes.titlesize": 12, "axes.labelsize": 11, "xtick.labelsize": 10.5, "ytick.labelsize": 10.5,
    "legend.fontsize": 10.5, "legend.frameon": False, "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": True, "axes.axisbelow": True, "grid.color": "#e4e4e4", "svg.hashsalt": "domainadaptor",
    "text.parse_math": False,  # a label with a dollar sign is not a formula
}  # fmt: skip


@dataclass(frozen=True)
class ReportFigure:
    """A figure that is drawn when it is written."""

    name: str  # file name without suffix
    caption: str
    draw: Callable[[], Any]  # returns a matplotlib figure


def render(draw: Callable[[], Any], formats: Sequence[str] = ("png",), dpi: int = 120) -> dict[str, bytes]:
    """Draw a figure in the style of reports; return it by file format."""
    metadata = {"png": {"Software": None}, "svg": {"Date": None}}
    with _style():
        figure = draw()
        files = {name: io.BytesIO() for name in formats}
        for name, file in files.items():
            figure.savefig(file, format=name, dpi=dpi, metadata=metadata[name])
    return {name: file.getvalue() for name, file in files.items()}


def panels(count: int, across: int, width: float, height: float, *, sharey: bool = False) -> tuple[Any, list[Any]]:
    """Return a figure and its panels of the given size in inches, so many in a row."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(count, across)
    rows = -(-count // columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, columns, squeeze=False, sharey=sharey).ravel().tolist()
    for empty in grid[count:]:
        empty.remove()
    return figure, grid[:count]


def look(number: int) -> dict[str, Any]:
    """Return color, marker and dashes of a line; the first eight differ in all, many more in the combination."""
    again = number // len(COLORS)
    marker = MARKERS[(number + 3 * again) % len(MARKERS)]
    return {"color": COLORS[number % len(COLORS)], "marker": marker, "linestyle": DASHES[again % len(DASHES)]}


def legend_right(panel: Any) -> None:
    """Put a legend next to the panel, where it hides nothing."""
    panel.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), handlelength=3)


def tall_enough(height: float, labels: Sequence[str]) -> float:
    """Return a height in inches that leaves room for a legend with those labels."""
    return max(height, 0.6 + 0.215 * sum(label.count("\n") + 1 for label in labels))


def wrapped(text: str, width: int = 22) -> str:
    """Return a label in at most three lines of that many letters."""
    lines = textwrap.wrap(text.replace("_", "_\u200b"), width, break_long_words=True) or [""]
    return "\n".join(line.replace("\u200b", "") for line in lines[:3]) + ("…" if len(lines) > 3 else "")


@dataclass(frozen=True)
class LayerTrend:
    """One value per layer, from the input on."""

    label: str
    layers: Mapping[str, float]

    @property
    def values(self) -> "np.ndarray[Any, Any]":
        """The values alone."""
        return np.array(list(self.layers.values()))

    def line(self) -> tuple[float, float]:
        """Return slope, from the first layer at 0 to the last at 1, and start of the least-squares line."""
        slope, start = np.polyfit(np.linspace(0, 1, len(self.layers)), self.values, 1)
        return float(slope), float(start)


def draw_trends(found: Mapping[str, Sequence[LayerTrend]], what: str, *, regression: bool) -> Any:
    """Draw values by depth: one panel per row, one color per column."""
    most = max(found.values(), key=len)
    figure, shown = panels(len(found), 1, 9.5, tall_enough(4.2, [trend.label for trend in most]), sharey=True)
    values = np.concatenate([trend.values for trends in found.values() for trend in trends])
    logarithmic = values.min() > 0 and values.max() > _APART * np.median(values)
    for panel, (title, trends) in zip(shown, found.items(), strict=True):
        for at, trend in enumerate(trends):
            depth = np.arange(1, len(trend.layers) + 1)
            width, alpha = (0.8, 0.75) if regression else (1.6, 1)
            panel.plot(depth, trend.values, label=trend.label, linewidth=width, alpha=alpha, markersize=5, **look(at))
            if regression and len(depth) > 1:
                slope, start = trend.line()
                panel.plot(depth[[0, -1]], [start, start + slope], linewidth=2.4, **look(at) | {"marker": ""})
        if len(found) > 1:
            panel.set_title(title, loc="left")
        if logarithmic:
            panel.set_yscale("log")
            panel.yaxis.set_major_formatter("{x:g}")
        panel.set_ylabel(what)
        panel.xaxis.get_major_locator().set_params(integer=True)
        legend_right(panel)
    shown[-1].set_xlabel("norm layer, counted from the input")
    return figure


@contextmanager
def _style() -> Iterator[None]:
    import matplotlib

    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the font lacks a letter of a name
        yield
