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
    figure = Figure(figsize=(8, 8.6), layout="constrained")
    for axes, at in zip(figure.subplots(2), PANELS, strict=True):
        found = [number for number in numbers(BEDS[at]) if number.row in times and number.gain > -10]
        for number in found:
            ours = number.row.startswith(("auto", "AdaMixBN", "DomainAdaptor"))
            x, y = times[number.row], number.gain
            axes.plot(x, y, "o", color="#c2410c" if ours else "#475569", markersize=7 if ours else 5)
            axes.annotate(number.row, (x, y), xytext=(6, 3), textcoords="offset points", fontsize=8)
        axes.axhline(0, color="#94a3b8", linewidth=1)
        axes.set_xscale("log")
        axes.set_xticks([1, 2, 5, 10], ["1", "2", "5", "10"])
        axes.minorticks_off()
        axes.set_title(BEDS[at].name, loc="left", fontsize=11)
        axes.set_ylabel("accuracy gained, points")
        axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("time per batch of 64, in units of the source model")
    figure.savefig(path, format="svg")


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
