"""More about each method than its accuracy: changed answers, calibration, time, memory; by domain and class."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from domainadaptor.lab.records.runs import EvaluationRecord
from domainadaptor.lab.reports import counts
from domainadaptor.lab.reports.numbers import number
from domainadaptor.lab.reports.selection import TableRecords, countable
from domainadaptor.lab.reports.tables import PrintedTable, ResultNumber, TableLine, View, embolden

_CAPTION = (
    "All images and seeds of a row counted together, in percent. "
    "Before step: the method's answers before it learned from the batch. Better: wrong by the source model, correct "
    "after; worse: the reverse. ECE: expected calibration error with 15 bins, 0 is best. Relative time: divided by the "
    "time of the source model on the same batches. Fallback batches: answered by the source model."
)


class _Detail(NamedTuple):
    title: str
    number: Callable[[Sequence[EvaluationRecord]], float | None]
    digits: int = 1
    best: str = ""


_DETAILS = (
    _Detail("images", lambda records: float(sum(score.images for score in counts.scores(records))), 0),
    _Detail("source model", partial(counts.accuracy, of="source")),
    _Detail("before step", partial(counts.accuracy, of="before")),
    _Detail("after", counts.accuracy, best="highest"),
    _Detail("better", partial(counts.share, count="better")),
    _Detail("worse", partial(counts.share, count="worse")),
    _Detail("changed", partial(counts.share, count="changed")),
    _Detail("ECE source model", partial(counts.calibration_error, of="source")),
    _Detail("ECE after", counts.calibration_error, best="lowest"),
    _Detail("ms per batch", counts.milliseconds),
    _Detail("relative time", counts.relative_time, 2),
    _Detail("peak memory, MB", counts.peak_memory, 0),
    _Detail("fallback batches", lambda records: float(sum(record.fell_back for record in records)), 0),
)
DETAIL = ("group", "row", "column", "domain", "class", "measure", "value")
_TITLES = tuple(detail.title for detail in _DETAILS)


def details_view(table: TableRecords[EvaluationRecord]) -> View:
    """Show one line of details per row; there is no table without records."""
    lines, values, numbers = [], [], []
    for row in table.layout.rows:
        partly = any(cell.gaps for cell in table.cells(row).values())
        for column, records in countable(table, row).items():
            found = [detail.number(records) if records else None for detail in _DETAILS]
            values.append(found)
            texts = tuple(number(value, detail.digits) for value, detail in zip(found, _DETAILS, strict=True))
            lines.append(TableLine(f"{row.label}, {column}" if column else row.label, texts, row.group))
            state = ("partial" if partly else "done") if records else "missing"
            place = (row.group, row.label, column or "all")
            numbers += [ResultNumber(*place, *pair, state=state) for pair in zip(_TITLES, found, strict=True)]
    if not any(any(line.cells) for line in lines):
        return View(numbers=numbers)
    for at, detail in enumerate(_DETAILS):
        if detail.best:
            lines = embolden(lines, at, [line[at] for line in values], lowest=detail.best == "lowest")
    return View((PrintedTable(table.layout.corner, _TITLES, lines, _CAPTION).without_empty_columns(),), numbers=numbers)


def details_by_domain(table: TableRecords[EvaluationRecord]) -> list[tuple[str | float, ...]]:
    """Return all details, with the fields of `DETAIL`, for each row, column, domain and class."""
    lines: list[tuple[str | float, ...]] = []
    for row in table.layout.rows:
        for column, cell in table.cells(row).items():
            for domain in dict.fromkeys(name for record in cell.records for name in record.scores):
                own = [_of_domain(record, domain) for record in cell.records if domain in record.scores]
                place = (row.group, row.label, column, domain)
                found = ((detail.title, detail.number(own)) for detail in _DETAILS)
                lines += [(*place, "", title, round(value, 4)) for title, value in found if value is not None]
                for name, before, after in counts.class_accuracies(own):
                    lines.append((*place, name, "source model", round(before, 4)))
                    lines.append((*place, name, "after", round(after, 4)))
    return lines


def _of_domain(record: EvaluationRecord, domain: str) -> EvaluationRecord:
    """Return a record reduced to one domain; time and memory of a stream are known only for all domains together."""
    unknown = {"seconds": None, "memory": None, "fell_back": 0} if len(record.scores) > 1 else {}
    return record.model_copy(update={"scores": {domain: record.scores[domain]}, **unknown})
