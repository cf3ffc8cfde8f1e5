"""A closer look at the best row of a table: images whose answer changed, and which classes were confused."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageOps

from domainadaptor.lab.records.plans import PlannedRow
from domainadaptor.lab.records.runs import ChangedPrediction, EvaluationRecord, RunSettings
from domainadaptor.lab.reports.counts import Array, accuracy, confusion
from domainadaptor.lab.reports.figures import GREEN, VERMILLION, ReportFigure, panels
from domainadaptor.lab.reports.selection import TableRecords, countable
from domainadaptor.lab.reports.tables import MEAN, NumberRow, estimates

# Returns an image by run, domain and name; None if it is not on this machine.
ImageReader = Callable[[RunSettings, str, str], Image.Image | None]

_SHOWN = 12  # images
_SIDE = 128  # pixels of an image
_WRITTEN, _NAMED = 12, 30  # classes up to which a confusion matrix has numbers and names


class _Changed(NamedTuple):
    picture: Image.Image
    domain: str
    classes: Sequence[str]
    example: ChangedPrediction


def best_row(table: TableRecords[EvaluationRecord]) -> PlannedRow | None:
    """Return the adapting row with the highest mean; complete rows come first."""
    plan = table.layout
    rows = [row for row in plan.rows if any(record.run.method != "source" for record in table.of_row(row))]
    planned = [NumberRow(row.label, "", None, accuracy, table.cells(row)) for row in rows]
    means = [estimates([row], [c for c in plan.columns if row.cells[c].expected]).get((0, MEAN)) for row in planned]

    def height(at: int) -> tuple[bool, float]:
        found = means[at]
        return found is not None, found.mean if found else accuracy(table.of_row(rows[at])) or 0.0

    return rows[max(range(len(rows)), key=height)] if rows else None


def confusion_figure(table: TableRecords[EvaluationRecord], row: PlannedRow) -> ReportFigure | None:
    """Return confusion matrices of the source model and of a row; of its best column if domains repeat."""
    groups = countable(table, row)
    column = max(groups, key=lambda name: accuracy(groups[name]) or 0.0)
    records = [record for record in groups[column] if record.classes == groups[column][0].classes]
    before, after = confusion(records, "source"), confusion(records)
    if before is None or after is None:
        return None
    domains = ", ".join(dict.fromkeys(domain for record in records for domain in record.scores))
    label = f"{row.label}, column {column}" if column else row.label
    caption = f"{label}: confusion matrices of the source model and after adaptation ({domains})."
    return ReportFigure(f"{table.name}-confusion", caption, partial(_draw_confusion, before, after, records[0].classes))


def changed_figure(table: TableRecords[EvaluationRecord], row: PlannedRow, read: ImageReader) -> ReportFigure | None:
    """Return some test images whose answer the method changed; None if no image can be read."""
    images: list[_Changed] = []
    for record, domain, example in _examples(table.of_row(row)):
        picture = read(record.run, domain, example.name) if len(images) < _SHOWN else None
        if picture is not None:
            images.append(_Changed(picture, domain, record.classes, example))
    if not images:
        return None
    caption = (
        f"{row.label}: test images whose answer changed, with the true class above, and below it the answers of the "
        "source model and after adaptation. A selection with up to half improved answers, not a representative sample."
    )
    return ReportFigure(f"{table.name}-changed", caption, partial(_draw_changed, images))


def has_examples(table: TableRecords[EvaluationRecord], row: PlannedRow) -> bool:
    """Return whether the records name images whose answer changed."""
    return next(_examples(table.of_row(row)), None) is not None


def _examples(records: Sequence[EvaluationRecord]) -> Iterator[tuple[EvaluationRecord, str, ChangedPrediction]]:
    """Yield each image once, alternating between domains, and between improved and other answers."""
    queues: dict[tuple[str, bool], list[tuple[EvaluationRecord, str, ChangedPrediction]]] = {}
    seen = set()
    for record in records:
        for domain, score in record.scores.items():
            for example in score.examples:
                key = (record.run.dataset, example.name)  # an image may be in several domains
                if key not in seen:
                    seen.add(key)
                    better = example.adapted == example.label
                    queues.setdefault((domain, better), []).append((record, domain, example))
    while waiting := [queue for queue in queues.values() if queue]:
        for queue in waiting:
            yield queue.pop(0)


def _draw_confusion(before: Array, after: Array, classes: Sequence[str]) -> Any:
    side = min(6.2, max(4.4, 0.5 * len(classes) + 1.6))
    figure, shown = panels(2, 2, side + 0.2, side + 0.5)
    few = len(classes) <= _WRITTEN
    ticks = range(len(classes)) if len(classes) <= _NAMED else []
    names = [_short(classes[at], 16) for at in ticks]
    for panel, counts, title in zip(shown, (before, after), ("source model", "adapted"), strict=True):
        percent = 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        image = panel.imshow(percent, vmin=0, vmax=100, cmap="Blues", interpolation="nearest")
        panel.set_title(f"{title}: {100 * np.trace(counts) / max(1, counts.sum()):.1f} % correct", loc="left")
        panel.grid(visible=False)
        panel.set_xlabel("predicted class")
        panel.set_xticks(ticks, names, rotation=45 if few else 90, ha="right", va="top" if few else "center",
                         rotation_mode="anchor", fontsize=10.5 if few else 8.5)  # fmt: skip
        panel.set_yticks(ticks, names if panel is shown[0] else [], fontsize=10.5 if few else 8.5)
        for (row, column), value in np.ndenumerate(percent) if few else ():
            if value >= 0.5:
                color = "white" if value > 55 else "black"
                panel.text(column, row, f"{value:.0f}", ha="center", va="center", fontsize=9.5, color=color)
    shown[0].set_ylabel("true class")
    figure.colorbar(image, ax=shown, shrink=0.75, label="% of the true class")
    return figure


def _draw_changed(images: Sequence[_Changed]) -> Any:
    figure, shown = panels(len(images), 6, 1.95, 2.85)
    for panel, (picture, domain, classes, example) in zip(shown, images, strict=True):
        small = max(picture.size) <= _SIDE // 2
        method = Image.Resampling.NEAREST if small else Image.Resampling.LANCZOS
        panel.imshow(ImageOps.pad(picture.convert("RGB"), (_SIDE, _SIDE), method, color="white"))
        panel.set_xticks([])
        panel.set_yticks([])
        panel.spines[:].set_visible(False)
        panel.set_title(f"{_short(classes[example.label], 20)}\n{_short(domain, 24)}", fontsize=10, pad=4)
        panel.set_xlabel(" \n ", fontsize=12)  # keeps room for the answers
        answers = ((example.source, example.source_confidence), (example.adapted, example.confidence))
        for line, (word, (answer, confidence)) in enumerate(zip(("source", "adapted"), answers, strict=True)):
            right = answer == example.label
            text = f"{word}: {_short(classes[answer], 12)} {100 * confidence:.0f} % {'✓' if right else '✗'}"
            panel.text(0.5, -0.03 - 0.12 * line, text, fontsize=9.5, transform=panel.transAxes, ha="center", va="top",
                       color=GREEN if right else VERMILLION)  # fmt: skip
    return figure


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"
