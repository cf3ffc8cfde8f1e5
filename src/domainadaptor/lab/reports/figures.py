"""What all figures share: colors that color-blind people can tell apart, readable text, reproducible files."""

import io
import textwrap
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

# Okabe and Ito's colors; yellow last, since it is faint on white.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#000000", "#F0E442")
BLUE, ORANGE = COLORS[0], COLORS[3]
GREY = "#767676"
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", (0, (6, 1.5)), (0, (3, 1, 1, 1)), (0, (1, 1)))
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
    import matplotlib

    metadata = {"png": {"Software": None}, "svg": {"Date": None}}
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a name is very long, or the font lacks a letter of it
        figure = draw()
        files = {name: io.BytesIO() for name in formats}
        for name, file in files.items():
            figure.savefig(file, format=name, dpi=dpi, metadata=metadata[name])
    return {name: file.getvalue() for name, file in files.items()}


def panels(count: int, across: int, width: float, height: float, *, sharey: bool = False) -> tuple[Any, list[Any]]:
    """Return a figure and its panels of the given size in inches, so many in a row."""
    from matplotlib.figure import Figure

    columns = min(count, across)
    rows = -(-count // columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharey=sharey).ravel().tolist()
    for empty in grid[count:]:
        empty.remove()
    return figure, grid[:count]


def panel_for(width: float, labels: Sequence[str]) -> tuple[Any, Any]:
    """Return a figure with one panel, tall enough for a legend with those labels."""
    figure, (panel,) = panels(1, 1, width, tall_enough(4.6, labels))
    return figure, panel


def error_bars(panel: Any, points: Sequence[tuple[float, float, float | None]], *, size: int = 6, **style: Any) -> None:
    """Draw a line through points (x, y, deviation), with error bars if there is a deviation."""
    if points:
        x, y, spread = zip(*((x, y, deviation or 0) for x, y, deviation in points), strict=True)
        panel.errorbar(x, y, spread if any(spread) else None, capsize=3, markersize=size, linewidth=1.6, **style)


def bars(bar: Sequence[tuple[str, float, float | None, str]], reference: float | None, axis: str) -> Any:
    """Return a figure with a horizontal bar per label, value, error and text, and a dotted line at the reference."""
    figure, (panel,) = panels(1, 1, 9, 0.42 * len(bar) + 1.2)
    labels, values, errors, texts = zip(*((*part[:2], part[2] or 0, part[3]) for part in bar), strict=True)
    spread = errors if any(errors) else None
    panel.barh(range(len(bar)), values, 0.7, xerr=spread, color=BLUE, ecolor="#444444", capsize=3)
    ends = [value + error for value, error in zip(values, errors, strict=True)]
    for place, (end, text) in enumerate(zip(ends, texts, strict=True)):
        panel.text(end + 0.015 * max(ends), place, text, va="center", fontsize=10.5)
    if reference is not None:
        panel.axvline(reference, color=GREY, linestyle=":", linewidth=1.2)
    panel.set_yticks(range(len(bar)), [wrapped(label, 34) for label in labels])
    panel.set(xlim=(0, 1.28 * max(*ends, reference or 0)), xlabel=axis)
    panel.grid(axis="y", visible=False)
    panel.invert_yaxis()
    return figure


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
