"""The picture of all methods: accuracy gained against cost, drawn from the records when the site is built."""

from pathlib import Path
from typing import Any

from docutils import nodes
from records import BEDS, numbers, relative_times
from sphinx.util.docutils import SphinxDirective

PANELS = (0, 2)  # the test beds with (nearly) all methods


def draw(path: Path) -> None:
    """Draw points gained over the source model against time per batch, one panel for each test bed."""
    from matplotlib.figure import Figure

    times = relative_times()
    figure = Figure(figsize=(8, 10))
    figure.subplots_adjust(left=0.08, right=0.86, bottom=0.06, top=0.96, hspace=0.2)
    for axes, at in zip(figure.subplots(2), PANELS, strict=True):
        found = [number for number in numbers(BEDS[at]) if number.row in times and number.gain > -10]
        axes.axhline(0, color="#94a3b8", linewidth=1)
        axes.set_xscale("log")
        axes.set_xlim(0.95, 10.5)
        axes.set_ylim(min(number.gain for number in found) - 0.5, 1.06 * max(number.gain for number in found))
        axes.set_xticks([1, 2, 5, 10], ["1", "2", "5", "10"])
        axes.minorticks_off()
        axes.set_title(BEDS[at].name, loc="left", fontsize=11)
        axes.set_ylabel("accuracy gained, points")
        axes.spines[["top", "right"]].set_visible(False)
        _label(axes, [(number.row, times[number.row], number.gain) for number in found])
    axes.set_xlabel("time per batch of 64, in units of the source model")
    figure.savefig(path, format="svg")


def _label(axes: Any, points: list[tuple[str, float, float]]) -> None:
    """Draw dots with names, moved down until they do not overlap."""
    taken: list[tuple[float, float, float]] = []
    for name, x, y in sorted(points, key=lambda point: -point[2]):
        ours = name.startswith(("auto", "AdaMixBN", "DomainAdaptor"))
        color = "#c2410c" if ours else "#475569"
        axes.plot(x, y, "o", color=color, markersize=7 if ours else 5)
        left, bottom = (value * 72 / axes.figure.dpi for value in axes.transData.transform((x, y)))
        left, right, at = left + 7, left + 7 + 4.6 * len(name), bottom - 3
        while any(left < end and right > start and abs(at - other) < 9 for start, end, other in taken):
            at -= 1
        taken.append((left, right, at))
        away = at - bottom
        arrow = {"arrowstyle": "-", "color": "#cbd5e1", "linewidth": 0.7} if away < -12 else None
        axes.annotate(
            name, (x, y), xytext=(7, away), textcoords="offset points", fontsize=8, color=color, arrowprops=arrow
        )


class Summary(SphinxDirective):
    """`{accuracy-and-cost}`: the picture."""

    def run(self) -> list[nodes.Node]:
        """Draw it next to the static files of the site."""
        folder = Path(self.env.app.outdir) / "_images"
        folder.mkdir(parents=True, exist_ok=True)
        draw(folder / "accuracy-and-cost.svg")
        depth = "../" * self.env.docname.count("/")
        html = (
            f'<img class="chart" src="{depth}_images/accuracy-and-cost.svg" '
            'alt="Points of accuracy gained over the source model against time per batch, for each method">'
        )
        return [nodes.raw("", html, format="html")]


def setup(app: Any) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("accuracy-and-cost", Summary)
    return {"parallel_read_safe": True}
