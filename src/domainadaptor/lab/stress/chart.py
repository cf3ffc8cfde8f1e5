"""Chart of a stress test: accuracy of the probe over batches, a panel for each kind of stream."""

from pathlib import Path
from typing import Any

from domainadaptor.lab.stress.stress_run import StressReport

_GRAY, _BLUE, _ORANGE = "#6f6f6f", "#0072b2", "#d55e00"  # color-blind safe (Okabe and Ito)
_COLUMNS = 3


def draw(report: StressReport, path: Path) -> None:
    """Write the chart as PNG."""
    from matplotlib.figure import Figure

    kinds = report.kinds()
    columns = min(_COLUMNS, len(kinds))
    rows = -(-len(kinds) // columns)
    figure = Figure(figsize=(max(6.0, 4 * columns), 2.6 * rows + 1.1), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel().tolist()
    for panel, kind in zip(panels, kinds, strict=False):
        _panel(panel, report, kind)
    for empty in panels[len(kinds) :]:
        empty.remove()
    figure.supxlabel("batches", fontsize=9)
    figure.supylabel("accuracy, %", fontsize=9)
    handles = dict(pair for panel in panels for pair in zip(*reversed(panel.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles), fontsize=9)
    figure.suptitle(f"{report.method}: accuracy on clean images during hostile and ordinary streams", fontsize=12)
    figure.savefig(path, dpi=110, format="png")


def _panel(panel: Any, report: StressReport, kind: str) -> None:
    panel.axhline(report.source, color=_GRAY, linewidth=1.2, linestyle="--", label="source model")
    panel.axhspan(report.source - 2, report.source, color=_GRAY, alpha=0.18, linewidth=0, label="2 points below")
    # Different markers, for readers who cannot tell the colors apart.
    for guard, color, marker in ((False, _ORANGE, "s"), (True, _BLUE, "o")):
        course = report.of(kind, guard)
        if course is None:
            continue
        label = f"{report.method} {'with' if guard else 'without'} the guard"
        at, accuracy = (0, *course.at), (report.start, *course.accuracy)
        panel.plot(at, accuracy, color=color, marker=marker, markersize=3, linewidth=1.6, label=label)
        if course.trips:
            style = {"color": color, "markersize": 7, "transform": panel.get_xaxis_transform()}
            panel.plot(course.trips, [0.02] * len(course.trips), "|", label="guard reset", **style)
    guarded = report.of(kind, True)
    resets = "" if guarded is None else f", {len(guarded.trips)} reset{'' if len(guarded.trips) == 1 else 's'}"
    panel.set_title(f"{kind}{resets}", loc="left", fontsize=10)
    panel.set_ylim(0, 102)
    panel.tick_params(labelsize=8)
    panel.spines[["top", "right"]].set_visible(False)
