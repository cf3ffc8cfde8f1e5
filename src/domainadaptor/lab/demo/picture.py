"""The demo's one picture: the styles, and what each method makes of them."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from domainadaptor.errors import BadFile
from domainadaptor.lab.demo.run import Report, sample_images

_COLUMNS, _ROWS = 7, 2
_GREY, _BLUE, _RED = "#9a9a9a", "#0072b2", "#d55e00"  # color-blind safe (Okabe and Ito)


def draw(report: Report, path: Path) -> None:
    """Writes the picture as PNG.

    Raises:
        BadFile: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BadFile("the picture is drawn with matplotlib: pip install 'domainadaptor[demo]'") from error
    styles = list(report.at_home)
    figure = Figure(figsize=(12, 2.15 * len(styles) + 1.1), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(styles), 2, gridspec_kw={"width_ratios": [1.25, 1]}, squeeze=False)
    for (left, right), style in zip(grid, styles, strict=True):
        left.imshow(np.asarray(_sheet(style)), interpolation="nearest")
        left.set_axis_off()
        others = ", ".join(other for other in styles if other != style)
        left.set_title(f"{style}   (trained on {others}: {report.at_home[style]:.0f} % there)", loc="left", fontsize=11)
        _bars(right, report, style)
    base = {score.style: score.correct for score in report.of("source")}
    worse = any(score.correct < base[score.style] for score in report.scores)
    colors = "grey is the network as it is, blue is better than that" + (", orange worse" if worse else "")
    figure.suptitle(f"Reading digits in a style never seen in training: {colors}", fontsize=12.5)
    figure.savefig(path, dpi=110)


def _sheet(style: str) -> torch.Tensor:
    """Rows of sample digits, (height, width, 3)."""
    rows = sample_images(style, _ROWS * _COLUMNS).split(_COLUMNS)
    return torch.cat([torch.cat(list(row), dim=-1) for row in rows], dim=-2).permute(1, 2, 0)


def _bars(axes: Any, report: Report, style: str) -> None:
    methods = report.methods()
    scores = {score.method: score.accuracy for score in report.scores if score.style == style}
    base = scores["source"]
    colors = [_GREY if m == "source" else _BLUE if scores[m] >= base else _RED for m in methods]
    labels = ["as it is" if m == "source" else m for m in methods]
    bars = axes.barh(labels, [scores[m] for m in methods], color=colors, height=0.72)
    texts = [
        f"{scores[m]:.1f} %" if m == "source" else f"{scores[m]:.1f} %  ({scores[m] - base:+.1f})" for m in methods
    ]
    axes.bar_label(bars, texts, padding=4, fontsize=9)
    axes.axvline(base, color=_GREY, linewidth=1, linestyle=":")
    axes.set_xlim(0, 128)
    axes.set_xticks([0, 25, 50, 75, 100], ["0", "25", "50", "75", "100 %"], fontsize=9)
    axes.tick_params(axis="y", labelsize=9, length=0)
    axes.invert_yaxis()
    axes.spines[["top", "right", "left"]].set_visible(False)
