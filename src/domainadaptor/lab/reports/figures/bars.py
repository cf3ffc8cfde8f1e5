"""Time as bars: how many plain inferences a batch costs."""

from collections.abc import Sequence
from typing import Any

from domainadaptor.lab.reports.cells import Spread
from domainadaptor.lab.reports.figures.canvas import BLUE, GREY, canvas, folded


def draw_ratios(bars: Sequence[tuple[str, Spread, Spread | None]]) -> Any:
    """A bar for each (label, ratio to plain inference, milliseconds)."""
    figure = canvas(9, 0.42 * len(bars) + 1.2)
    panel = figure.subplots()
    places = range(len(bars))
    ratios = [ratio.mean for _, ratio, _ in bars]
    spreads = [ratio.deviation or 0 for _, ratio, _ in bars]
    panel.barh(places, ratios, 0.7, xerr=spreads, color=BLUE, ecolor="#444444", capsize=3)
    widest = max(ratio + spread for ratio, spread in zip(ratios, spreads, strict=True))
    for place, (_, ratio, time), spread in zip(places, bars, spreads, strict=True):
        text = f"{ratio.mean:.2f}x" + (f", {time.mean:.1f} ms" if time else "")
        panel.text(ratio.mean + spread + 0.015 * widest, place, text, va="center", fontsize=10.5)
    panel.axvline(1, color=GREY, linestyle=":", linewidth=1.2)
    panel.set_yticks(places, [folded(label, 34) for label, _, _ in bars])
    panel.set_xlim(0, 1.28 * max(widest, 1))
    panel.set_xlabel("time of a batch, in plain inferences of the same network (dotted: 1)")
    panel.grid(axis="y", visible=False)
    panel.invert_yaxis()
    return figure
