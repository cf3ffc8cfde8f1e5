"""Chart of a benchmark: bars of the cost per batch, a panel per configuration."""

from pathlib import Path

from domainadaptor.lab.bench.benchmark import BenchReport, by_config

_BLUE, _GRAY = "#0072b2", "#9a9a9a"


def draw(report: BenchReport, path: Path) -> None:
    """Write the chart as PNG, if anything was measured."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    groups = by_config(report)
    if not groups:
        return
    bars = max(len(rows) for rows in groups.values())
    figure = Figure(figsize=(9, len(groups) * (0.42 * bars + 1.1)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(groups), 1, squeeze=False, sharex=True)[:, 0]
    for panel, (title, rows) in zip(panels, groups.items(), strict=True):
        methods, ratios = [row["method"] for row in rows], [row["ratio"] for row in rows]
        spread = [[row["ratio"] - row["ratio_low"] for row in rows], [row["ratio_high"] - row["ratio"] for row in rows]]
        drawn = panel.barh(methods, ratios, xerr=spread, color=_BLUE, ecolor="#555555", height=0.7)
        texts = [f"{row['ratio']:.2f}x   {row['images_per_second']:.0f} images/s" for row in rows]
        panel.bar_label(drawn, texts, padding=14, fontsize=9)
        panel.axvline(1, color=_GRAY, linestyle=":", linewidth=1)
        panel.set_title(title, loc="left", fontsize=11)
        panel.invert_yaxis()
        panel.tick_params(labelsize=9)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_xlim(0, 1.5 * max(row["ratio_high"] for row in report["rows"]))
    panels[-1].set_xlabel("time per batch relative to plain inference of the same network (dotted line)", fontsize=9)
    figure.savefig(path, dpi=110)
