"""A closer look at the best row of a table: images whose answer changed, and which classes were confused."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from domainadaptor.lab.records.plans import PlannedRow
from domainadaptor.lab.records.runs import ChangedPrediction, EvaluationRecord, RunSettings
from domainadaptor.lab.reports.counts import Array, accuracy, confusion
from domainadaptor.lab.reports.figures import GREEN, VERMILLION, ReportFigure, panels
from domainadaptor.lab.reports.selection import TableRecords, countable
from domainadaptor.lab.reports.tables import MEAN, estimates, number_rows

# Returns an image by run, domain and name; None if it is not on this machine.
ImageReader = Callable[[RunSettings, str, str], Image.Image | None]

_SHOWN = 12  # images
_SIDE = 128  # pixels of an image
_WRITTEN, _NAMED = 12, 30  # classes up to which a confusion matrix has numbers and names


def best_row(table: TableRecords[EvaluationRecord]) -> PlannedRow | None:
    """Return the adapting row with the highest mean; complete rows come first."""

    def height(at: int) -> tuple[bool, float]:
        columns = [column for column, cell in rows[at].cells.items() if cell.expected]
        found = estimates([rows[at]], columns).get((0, MEAN))
        return found is not None, found.mean if found else accuracy(table.of_row(planned[at])) or 0.0

    rows, planned = number_rows(table, accuracy), table.layout.rows
    adapts = [any(record.run.method != "source" for record in table.of_row(row)) for row in planned]
    best = max((at for at, own in enumerate(adapts) if own), key=height, default=None)
    return None if best is None else planned[best]


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


def changed_figure(
    table: TableRecords[EvaluationRecord], row: PlannedRow, read: ImageReader | None
) -> tuple[ReportFigure | None, bool]:
    """Return some test images whose answer the method changed, and whether images that could be shown are missing."""
    images: list[tuple[Image.Image, str, Sequence[str], ChangedPrediction]] = []
    examples = list(_examples(table.of_row(row)))
    for record, domain, example in examples:
        if read and len(images) < _SHOWN and (picture := read(record.run, domain, example.name)) is not None:
            images.append((picture, domain, record.classes, example))
    if not images:
        return None, bool(examples)
    caption = (
        f"{row.label}: test images whose answer changed, with the true class above, and below it the answers of the "
        "source model and after adaptation. A selection with up to half improved answers, not a representative sample."
    )
    return ReportFigure(f"{table.name}-changed", caption, partial(_draw_changed, images)), False


def _examples(records: Sequence[EvaluationRecord]) -> Iterator[tuple[EvaluationRecord, str, ChangedPrediction]]:
    """Yield each image once, alternating between domains, and between improved and other answers."""
    queues: dict[tuple[str, bool], list[tuple[EvaluationRecord, str, ChangedPrediction]]] = {}
    seen = set()
    every = ((r, domain, example) for r in records for domain, score in r.scores.items() for example in score.examples)
    for record, domain, example in every:
        key = (record.run.dataset, example.name)  # an image may be in several domains
        if key not in seen:
            seen.add(key)
            queues.setdefault((domain, example.adapted == example.label), []).append((record, domain, example))
    for turn in zip_longest(*queues.values()):
        yield from filter(None, turn)


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


def _draw_changed(images: Sequence[tuple[Image.Image, str, Sequence[str], ChangedPrediction]]) -> Any:
    figure, shown = panels(len(images), 6, 1.95, 2.85)
    for panel, (picture, domain, classes, example) in zip(shown, images, strict=True):
        small = max(picture.size) <= _SIDE // 2
        method = Image.Resampling.NEAREST if small else Image.Resampling.LANCZOS
        panel.imshow(ImageOps.pad(picture.convert("RGB"), (_SIDE, _SIDE), method, color="white"))
        panel.set(xticks=[], yticks=[])
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
