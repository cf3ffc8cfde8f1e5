"""What all figures share: colors that color-blind people can tell apart, readable letters, files that do not change."""

import io
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, NamedTuple

from PIL import Image

from domainadaptor.errors import BadFile

# Okabe and Ito's colors; yellow last, since it is faint on white.
BLUE, VERMILLION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
PURPLE, SKY, BLACK, YELLOW = "#CC79A7", "#56B4E9", "#000000", "#F0E442"
COLORS = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, BLACK, YELLOW)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", (0, (6, 1.5)), (0, (3, 1, 1, 1)), (0, (1, 1)))
GREY = "#767676"
_LARGE = 400_000  # bytes
NEEDED = "figures are drawn with matplotlib: pip install 'domainadaptor[report]'"

_STYLE = {
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.labelsize": 11,
    "xtick.labelsize": 10.5,
    "ytick.labelsize": 10.5,
    "legend.fontsize": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "legend.frameon": False,
    "text.parse_math": False,  # a label with a dollar is no formula
    "svg.hashsalt": "domainadaptor",
}


class Drawn(NamedTuple):
    """A figure as files."""

    png: bytes
    svg: bytes


def can_draw() -> bool:
    """Whether matplotlib is there."""
    return find_spec("matplotlib") is not None


def drawn(draw: Callable[[], Any]) -> Drawn:
    """What a function draws, in our style.

    Raises:
        BadFile: matplotlib is not installed.
    """
    with _style():
        figure = draw()
        png, svg = io.BytesIO(), io.BytesIO()
        figure.savefig(png, format="png", dpi=140, metadata={"Software": None})
        figure.savefig(svg, format="svg", metadata={"Date": None})
    return Drawn(lighter(png.getvalue()), svg.getvalue())


def lighter(png: bytes) -> bytes:
    """The same picture in 256 colors where photographs make it large."""
    if len(png) <= _LARGE:
        return png
    smaller = io.BytesIO()
    with Image.open(io.BytesIO(png)) as picture:
        picture.convert("RGB").quantize(256).save(smaller, format="PNG", optimize=True)
    return smaller.getvalue()


def canvas(width: float, height: float) -> Any:
    """An empty figure of so many inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def panels(count: int, across: int, width: float, height: float) -> tuple[Any, list[Any]]:
    """A figure of panels of that size, so many in a row, and the panels; empty places are left out."""
    columns = min(count, across)
    rows = -(-count // columns)
    figure = canvas(width * columns, height * rows)
    grid = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for empty in grid[count:]:
        empty.remove()
    return figure, grid[:count]


def look(number: int) -> dict[str, Any]:
    """Color, marker and dashes of a line: all differ for the first eight, and together for many more."""
    again = number // len(COLORS)
    return {
        "color": COLORS[number % len(COLORS)],
        "marker": MARKERS[(number + 3 * again) % len(MARKERS)],
        "linestyle": DASHES[again % len(DASHES)],
    }


def legend_right(panel: Any, entries: int) -> None:
    """A legend beside the panel, where it hides nothing."""
    if entries:
        panel.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), handlelength=3)  # dashes show


def tall_enough(height: float, labels: Sequence[str]) -> float:
    """Inches that a legend of those labels has room in, and not less than wanted."""
    return max(height, 0.6 + 0.215 * sum(label.count("\n") + 1 for label in labels))


def folded(text: str, width: int = 22) -> str:
    """A label in lines of that many letters, at most three."""
    lines = textwrap.wrap(text.replace("_", "_\u200b"), width, break_long_words=True) or [""]
    lines = [line.replace("\u200b", "") for line in lines]
    return "\n".join(lines[:3]) + ("…" if len(lines) > 3 else "")


@contextmanager
def _style() -> Iterator[None]:
    try:
        import matplotlib
    except ImportError as error:
        raise BadFile(NEEDED) from error
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a name in letters that the font lacks
        yield
