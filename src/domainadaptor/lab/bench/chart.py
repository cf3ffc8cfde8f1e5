"""Charts of a benchmark: bars of the cost per batch, curves of how the cost grows."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BLUE, _GRAY = "#0072b2", "#9a9a9a"
_LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_MARKS = "osD^vP"
_AXES = {"batch size": "batch_size", "side": "size", "network": "network"}


def draw(report: Mapping[str, Any], path: Path) -> None:
    """Write curves if the report varies one thing at a time, and bars otherwise."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if not report["rows"]:
        return
    figure = Figure(layout="constrained")
    FigureCanvasAgg(figure)
    if any(row["axis"] for row in report["rows"]):
        _draw_curves(report, figure)
    else:
        _draw_bars(report, figure)
    figure.savefig(path, dpi=110)


def _draw_bars(report: Mapping[str, Any], figure: "Figure") -> None:
    """Draw one panel per network, batch size and image size."""
    groups: dict[str, list[Any]] = {}
    for row in report["rows"]:
        groups.setdefault(f"{row['network']}, {row['batch_size']} images of {row['size']}x{row['size']}", []).append(
            row
        )
    tallest = max(len(rows) for rows in groups.values())
    figure.set_size_inches(9, len(groups) * (0.42 * tallest + 1.1))
    panels = figure.subplots(len(groups), 1, squeeze=False)[:, 0]
    widest = max(row["ratio_high"] for row in report["rows"])
    for panel, (title, rows) in zip(panels, groups.items(), strict=True):
        ratios = [row["ratio"] for row in rows]
        spread = [[max(0.0, row["ratio"] - row["ratio_low"]) for row in rows],
                  [max(0.0, row["ratio_high"] - row["ratio"]) for row in rows]]  # fmt: skip
        bars = panel.barh(
            [row["method"] for row in rows], ratios, xerr=spread, color=_BLUE, ecolor="#555555", height=0.7
        )
        texts = [f"{row['ratio']:.2f}x   {row['images_per_second']:.0f} images/s" for row in rows]
        panel.bar_label(bars, texts, padding=14, fontsize=9)
        panel.axvline(1, color=_GRAY, linestyle=":", linewidth=1)
        panel.set_xlim(0, 1.5 * widest)
        panel.set_title(title, loc="left", fontsize=11)
        panel.invert_yaxis()
        panel.tick_params(labelsize=9)
        panel.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xlabel("time per batch relative to plain inference of the same network (dotted line)", fontsize=9)


def _draw_curves(report: Mapping[str, Any], figure: "Figure") -> None:
    """Draw a column per axis: relative time, milliseconds per image, and memory if it was measured."""
    axes = [axis for axis in _AXES if any(row["axis"] == axis for row in report["rows"])]
    # Label, value for a method, value for plain inference.
    curves = [
        ("time relative to plain inference", lambda row: row["ratio"], lambda row: 1.0),
        ("milliseconds per image", lambda row: row["milliseconds"] / row["batch_size"],
         lambda row: row["plain_milliseconds"] / row["batch_size"]),
    ]  # fmt: skip
    if any(row.get("memory_mb") for row in report["rows"]):
        curves.append(("peak memory, MB", lambda row: row.get("memory_mb"), lambda row: row.get("plain_memory_mb")))
    figure.set_size_inches(4.2 * len(axes) + 0.6, 3 * len(curves))
    panels = figure.subplots(len(curves), len(axes), squeeze=False, sharey="row")
    methods = list(dict.fromkeys(row["method"] for row in report["rows"]))
    for column, axis in enumerate(axes):
        rows = [row for row in report["rows"] if row["axis"] == axis]
        for panel, (_, value, plain) in zip(panels[:, column], curves, strict=True):
            for number, method in enumerate(methods):
                own = {_point(row): value(row) for row in rows if row["method"] == method}
                style = {"color": _LINES[number % 6], "marker": _MARKS[number % 6], "label": method, "markersize": 5}
                panel.plot(list(own), list(own.values()), **style)
            base = {_point(row): plain(row) for row in rows}
            panel.plot(list(base), list(base.values()), color=_GRAY, linestyle=":", marker=".", label="plain inference")
            panel.tick_params(labelsize=8)
            if axis == "network":  # long names
                for label in panel.get_xticklabels():
                    label.set(rotation=20, ha="right")
            panel.spines[["top", "right"]].set_visible(False)
        panels[0, column].set_title(_fixed(rows[0], axis), fontsize=10)
        panels[-1, column].set_xlabel({"batch size": "batch size", "side": "image size"}.get(axis, axis))
    for (label, *_), panel in zip(curves, panels[:, 0], strict=True):
        panel.set_ylabel(label, fontsize=9)
    panels[0, 0].set_ylim(bottom=0)
    for panel in panels[1:, 0]:
        panel.set_yscale("log")
    panels[0, 0].legend(frameon=False, fontsize=8)
    if skipped := report["skipped"]:
        text = "\n".join(
            f"skipped: {point['network']}, {point['batch_size']} of {point['size']}x{point['size']}: {point['reason']}"
            for point in skipped
        )
        figure.supxlabel(text, fontsize=8, x=0.02, ha="left")


def _fixed(row: Mapping[str, Any], axis: str) -> str:
    """Return what is constant along an axis."""
    words = {"network": row["network"].rpartition(":")[2], "batch size": f"{row['batch_size']} images",
             "side": f"{row['size']}x{row['size']}"}  # fmt: skip
    return ", ".join(text for name, text in words.items() if name != axis)


def _point(row: Mapping[str, Any]) -> str:
    """Return the position of a row on its axis as text, so that points are evenly spaced."""
    return str(row[_AXES[row["axis"]]]).rpartition(":")[2]
