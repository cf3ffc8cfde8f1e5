"""The picture of the demo: the styles, and what each ingredient adds to the accuracy."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from domainadaptor.lab.demo.run import INGREDIENTS, DemoReport, sample_images

_COLUMNS, _ROWS = 7, 2
# Safe for color-blind readers (Okabe and Ito): source model, statistics, mixture, steps, the default.
_COLORS = ("#9a9a9a", "#56b4e9", "#0072b2", "#009e73", "#009e73", "#009e73", "#e69f00")


def draw(report: DemoReport, path: Path) -> None:
    """Write the picture as PNG."""
    styles = list(report.in_domain)
    figure = Figure(figsize=(12, 2.15 * len(styles) + 1.3), layout="constrained")
    grid = figure.subplots(len(styles), 2, gridspec_kw={"width_ratios": [1.2, 1]}, squeeze=False)
    for (left, right), style in zip(grid, styles, strict=True):
        left.imshow(np.asarray(_sheet(style)), interpolation="nearest")
        left.set_axis_off()
        others = ", ".join(other for other in styles if other != style)
        left.set_title(
            f"{style}   (trained on {others}: {report.in_domain[style]:.0f} % there)", loc="left", fontsize=11
        )
        _bars(right, report, style)
    figure.suptitle(
        f"Reading digits in a style left out of training, in batches of {report.batch_size}\n"
        "In parentheses, points gained: batch statistics and auto over the source model, mixed over batch\n"
        "statistics, each step over mixed statistics",
        fontsize=11.5,
    )
    figure.savefig(path, dpi=110)


def _sheet(style: str) -> torch.Tensor:
    """Return rows of sample digits, (height, width, 3)."""
    rows = sample_images(style, _ROWS * _COLUMNS).split(_COLUMNS)
    return torch.cat([torch.cat(list(row), dim=-1) for row in rows], dim=-2).permute(1, 2, 0)


def _bars(axes: Any, report: DemoReport, style: str) -> None:
    values = [report.accuracy(part.method, style) for part in INGREDIENTS]
    texts = [f"{values[0]:.1f} %"]
    for part, value in zip(INGREDIENTS[1:], values[1:], strict=True):
        texts.append(f"{value:.1f} %  ({value - report.accuracy(part.builds_on, style):+.1f})")
    labels = [f"{part.method}: {part.adds}" if part.adds else "source model" for part in INGREDIENTS]
    bars = axes.barh(labels, values, color=_COLORS, height=0.72)
    axes.bar_label(bars, texts, padding=4, fontsize=9)
    axes.axvline(values[0], color=_COLORS[0], linewidth=1, linestyle=":")
    axes.set_xlim(0, 128)
    axes.set_xticks([0, 25, 50, 75, 100], ["0", "25", "50", "75", "100 %"], fontsize=9)
    axes.tick_params(axis="y", labelsize=9, length=0)
    axes.invert_yaxis()
    axes.spines[["top", "right", "left"]].set_visible(False)
