"""Points with names: classes by training images and norm of their weights, methods by cost and accuracy."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from domainadaptor.lab.reports.figures.canvas import (
    BLUE,
    COLORS,
    GREY,
    MARKERS,
    folded,
    legend_right,
    panels,
    tall_enough,
)

_NAMED = 20  # classes; names of more would cover each other


@dataclass(frozen=True)
class Cloud:
    """The classes of one network."""

    title: str
    names: tuple[str, ...]
    images: "np.ndarray[Any, Any]"
    norms: "np.ndarray[Any, Any]"
    correlation: float | None


def draw_clouds(clouds: Sequence[Cloud]) -> Any:
    """A panel a network."""
    figure, shown = panels(len(clouds), 2, 5.6 if len(clouds) > 1 else 8, 4.2)
    for panel, cloud in zip(shown, clouds, strict=True):
        panel.scatter(cloud.images, cloud.norms, color=BLUE, s=36, zorder=3)
        if len(cloud.names) > 1 and np.ptp(cloud.images) > 0:
            slope, start = np.polyfit(cloud.images, cloud.norms, 1)
            ends = np.array([cloud.images.min(), cloud.images.max()])
            panel.plot(ends, start + slope * ends, color=GREY, linewidth=1.2)
        panel.margins(0.16, 0.2)
        if len(cloud.names) <= _NAMED:
            _name(panel, cloud)
        said = "" if cloud.correlation is None else f" (correlation {cloud.correlation:.2f})"
        panel.set_title(f"{cloud.title}{said}", loc="left")
        panel.set_xlabel("training images of the class")
        panel.set_ylabel("norm of its weights")
    return figure


def draw_prices(names: Sequence[str], ratios: Sequence[float], accuracies: Sequence[float]) -> Any:
    """What each row costs, and what it reaches."""
    labels = [folded(name, 34) for name in names]
    figure, (panel,) = panels(1, 1, 10, tall_enough(4.6, labels))
    for number, point in enumerate(zip(labels, ratios, accuracies, strict=True)):
        label, ratio, accuracy = point
        turn = number + number // len(COLORS)  # so that a color comes back with another marker
        panel.scatter(
            ratio, accuracy, label=label, s=64, zorder=3,
            color=COLORS[number % len(COLORS)], marker=MARKERS[turn % len(MARKERS)],
        )  # fmt: skip
    panel.margins(0.08, 0.12)
    panel.set_xlabel("time of a batch, in plain inferences")
    panel.set_ylabel("accuracy, %")
    legend_right(panel, len(labels))
    return figure


def _name(panel: Any, cloud: Cloud) -> None:
    """Names beside the points: right or left of them, above or below, where no other name or point is touched."""
    width, height = (np.ptp(values) or 1.0 for values in (cloud.images, cloud.norms))
    points = np.stack([(cloud.images - cloud.images.min()) / width, (cloud.norms - cloud.norms.min()) / height], 1)
    taken: list[tuple[float, float, float]] = []
    for at in np.argsort(cloud.norms):
        x, y = map(float, points[at])
        wide = 0.024 * len(cloud.names[at]) + 0.03
        others = np.delete(points, at, 0)

        def free(begin: float, level: float, wide: float = wide, others: "np.ndarray[Any, Any]" = others) -> bool:
            apart = all(abs(level - up) >= 0.075 or end <= begin or begin + wide <= start for start, end, up in taken)
            return apart and not any(begin < px < begin + wide and abs(level + 0.02 - py) < 0.05 for px, py in others)

        near = [(x, y + 0.045), (x, y - 0.08), (x - wide, y + 0.045), (x - wide, y - 0.08)]
        farther = [(x, y + 0.045 + 0.02 * step) for step in range(1, 60)]
        begin, level = next((place for place in near + farther if free(*place)), near[0])
        taken.append((begin, begin + wide, level))
        to_the_left = begin < x
        panel.annotate(
            cloud.names[at], (cloud.images[at], cloud.norms[at]), textcoords="data", fontsize=10,
            xytext=(cloud.images.min() + (x + (-0.012 if to_the_left else 0.012)) * width,
                    cloud.norms.min() + level * height),
            horizontalalignment="right" if to_the_left else "left",
            arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 2},
        )  # fmt: skip
