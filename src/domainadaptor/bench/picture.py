"""The benchmark as bars: how many plain inferences a batch costs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from domainadaptor.errors import BadFile

_BLUE, _GREY = "#0072b2", "#9a9a9a"


def draw(report: Mapping[str, Any], path: Path) -> None:
    """Writes a bar chart, one panel a network, batch size and image size.

    Raises:
        BadFile: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BadFile("the chart is drawn with matplotlib: pip install 'domainadaptor[report]'") from error
    groups: dict[str, list[Any]] = {}
    for row in report["rows"]:
        groups.setdefault(f"{row['network']}, {row['batch_size']} images of {row['size']}x{row['size']}", []).append(
            row
        )
    tallest = max(len(rows) for rows in groups.values())
    figure = Figure(figsize=(9, len(groups) * (0.42 * tallest + 1.1)), layout="constrained")
    FigureCanvasAgg(figure)
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
        panel.axvline(1, color=_GREY, linestyle=":", linewidth=1)
        panel.set_xlim(0, 1.5 * widest)
        panel.set_title(title, loc="left", fontsize=11)
        panel.invert_yaxis()
        panel.tick_params(labelsize=9)
        panel.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xlabel("time of a batch, in plain inferences of the same network (1 is the dotted line)", fontsize=9)
    figure.savefig(path, dpi=110)
