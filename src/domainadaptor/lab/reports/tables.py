"""Tables of one number per cell: means over seeds, next to the paper's numbers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Generic

from domainadaptor.lab.records.plans import PaperNumber, PlannedTable
from domainadaptor.lab.reports.numbers import Estimate, estimate, signed, with_deviation
from domainadaptor.lab.reports.paper import paper_value
from domainadaptor.lab.reports.selection import CellRecords, NumberOf, R

MEAN = "mean"
Estimates = dict[tuple[int, str], Estimate]  # by number of the row and name of the column

_BESIDE = 2  # with at most so many columns of paper numbers they stand next to ours, otherwise below


@dataclass(frozen=True)
class TableLine:
    """One printed line."""

    label: str
    cells: tuple[str, ...]
    group: str = ""
    bold: frozenset[int] = frozenset()
    below: bool = False  # it comments on the line above


@dataclass(frozen=True)
class PrintedTable:
    """A table as text, before a file format is chosen."""

    corner: str
    columns: tuple[str, ...]
    lines: tuple[TableLine, ...]
    caption: str = ""

    def without_empty_columns(self) -> "PrintedTable":
        """Return the table without columns that are empty in every line."""
        kept = [at for at in range(len(self.columns)) if any(line.cells[at] for line in self.lines)]
        lines = [
            replace(
                line,
                cells=tuple(line.cells[at] for at in kept),
                bold=frozenset(new for new, at in enumerate(kept) if at in line.bold),
            )
            for line in self.lines
        ]
        return replace(self, columns=tuple(self.columns[at] for at in kept), lines=tuple(lines))


@dataclass(frozen=True)
class ResultNumber:
    """One line of the long table of all results."""

    group: str
    row: str
    column: str
    measure: str
    value: float | None
    deviation: float | None = None
    seeds: int | None = None
    paper: float | None = None
    paper_deviation: float | None = None
    state: str = "done"  # done, partial, missing, failed
    reason: str = ""

    @property
    def difference(self) -> float | None:
        """Our value minus the paper's."""
        return None if self.value is None or self.paper is None else self.value - self.paper


@dataclass(frozen=True)
class NumberRow(Generic[R]):
    """A row of a number table."""

    label: str
    group: str
    paper: str | PaperNumber | None
    number: NumberOf[R]
    cells: Mapping[str, CellRecords[R]]


@dataclass(frozen=True)
class NumberFormat:
    """What the numbers of a table are."""

    measure: str
    unit: str  # in the paper's data
    digits: int = 1
    best: str = "highest"  # "lowest", or "" to print nothing bold


def estimates(rows: Sequence[NumberRow[R]], columns: Sequence[str]) -> Estimates:
    """Return mean and population deviation over seeds by row and column, and over all columns as `MEAN`.

    A mean over columns is left out where a run is missing, and has no deviation where seeds cannot be paired.
    """
    found: Estimates = {}
    for at, row in enumerate(rows):
        values = {column: row.cells[column].values(row.number) for column in columns}
        found |= {(at, column): known for column, own in values.items() if (known := estimate(own))}
        if not all(row.cells[c].complete and len(own) == len(row.cells[c].seeds) for c, own in values.items()):
            continue
        if len({len(own) for own in values.values()}) == 1:
            mean = estimate([fmean(seed) for seed in zip(*values.values(), strict=True)])
        else:
            mean = Estimate(fmean(map(fmean, values.values())), None, min(map(len, values.values())))
        found |= {(at, MEAN): mean} if mean else {}
    return found


def number_table(
    plan: PlannedTable, rows: Sequence[NumberRow[R]], style: NumberFormat
) -> tuple[PrintedTable, list[ResultNumber]]:
    """Return the printed table, and the same numbers for programs."""
    shown = [*plan.columns, MEAN] if plan.mean else list(plan.columns)
    ours = estimates(rows, plan.columns)
    theirs = {(at, column): value for at, row in enumerate(rows) for column in shown
              if (value := paper_value(plan.paper, row.paper, column, style.unit))}  # fmt: skip
    lines = [
        TableLine(row.label, tuple(_text(ours.get((at, c)), row.cells.get(c), style.digits) for c in shown), row.group)
        for at, row in enumerate(rows)
    ]
    for place, column in enumerate(shown) if style.best else ():
        cells = [row.cells.get(column) for row in rows]  # None for the mean, which is there only if complete
        values = [found.mean if (found := ours.get((at, column))) and (cell is None or cell.complete) else None
                  for at, cell in enumerate(cells)]  # fmt: skip
        lines = embolden(lines, place, values, lowest=style.best == "lowest")
    numbers = [
        _result(row, column, ours.get((at, column)), theirs.get((at, column)), style.measure)
        for at, row in enumerate(rows)
        for column in shown
        if (cell := row.cells.get(column)) is None or cell.seeds or cell.gaps
    ]
    printed = PrintedTable(plan.corner, tuple(shown), tuple(lines))
    return _with_paper(printed, ours, theirs, style.digits), numbers


def embolden(
    lines: Sequence[TableLine], column: int, values: Sequence[float | None], *, lowest: bool = False
) -> list[TableLine]:
    """Mark the best value of a column; values that are printed alike are marked alike."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return list(lines)
    best = min(known) if lowest else max(known)
    printed = [line.cells[column].partition(" ±")[0] for line in lines]
    texts = {text for text, value in zip(printed, values, strict=True) if value == best}
    return [
        replace(line, bold=line.bold | {column}) if value is not None and text in texts else line
        for line, text, value in zip(lines, printed, values, strict=True)
    ]


def _text(found: Estimate | None, cell: CellRecords[R] | None, digits: int) -> str:
    text = with_deviation(found, digits)
    if cell is None or not (cell.gaps or cell.seeds):
        return text
    if found is None:
        return "none" if not cell.gaps else "failed" if any(gap.failed for gap in cell.gaps) else "missing"
    return f"{text} ({found.seeds} of {cell.expected})" if cell.gaps else text


def _with_paper(table: PrintedTable, ours: Estimates, theirs: Estimates, digits: int) -> PrintedTable:
    """Put the paper's numbers and the differences into columns beside ours, or into lines below."""
    places = {at for at, column in enumerate(table.columns) if any(known == column for _, known in theirs)}

    def texts(row: int, column: str) -> tuple[str, str]:
        paper, found = theirs.get((row, column)), ours.get((row, column))
        return with_deviation(paper, digits), signed(found.mean - paper.mean, digits) if found and paper else ""

    if len(places) > _BESIDE:
        lines = []
        for row, line in enumerate(table.lines):
            pairs = [texts(row, column) for column in table.columns]
            cells = tuple(", ".join(filter(None, (paper.partition(" ±")[0], change))) for paper, change in pairs)
            below = [TableLine("paper, difference", cells, line.group, below=True)] if any(cells) else []
            lines += [line, *below]
        return replace(table, lines=tuple(lines))
    new_place = {at: at + 2 * sum(place < at for place in places) for at in range(len(table.columns))}

    def widened(cells: Sequence[str], beside: Callable[[str], tuple[str, str]]) -> tuple[str, ...]:
        return tuple(text for at, (cell, column) in enumerate(zip(cells, table.columns, strict=True))
                     for text in (cell, *(beside(column) if at in places else ())))  # fmt: skip

    lines = [
        replace(line, cells=widened(line.cells, partial(texts, row)), bold=frozenset(new_place[at] for at in line.bold))
        for row, line in enumerate(table.lines)
    ]
    columns = widened(table.columns, lambda _: ("paper", "difference"))
    return replace(table, columns=columns, lines=tuple(lines))


def _result(
    row: NumberRow[R], column: str, found: Estimate | None, paper: Estimate | None, measure: str
) -> ResultNumber:
    cell = row.cells.get(column)
    gaps = cell.gaps if cell else ()
    failed = any(gap.failed for gap in gaps)
    state = "done" if found and not gaps else "partial" if found else "failed" if failed else "missing"
    return ResultNumber(
        row.group, row.label, column, measure,
        found.mean if found else None, found.deviation if found else None, found.seeds if found else None,
        paper.mean if paper else None, paper.deviation if paper else None,
        state, "; ".join(dict.fromkeys(gap.reason for gap in gaps if gap.reason)),
    )  # fmt: skip
