"""Tables of one number per cell: means over seeds, next to the paper's numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Generic

from domainadaptor.lab.records.plans import PaperNumber, PlannedRow, PlannedTable
from domainadaptor.lab.reports.figures import ReportFigure
from domainadaptor.lab.reports.numbers import Estimate, estimate, signed, with_deviation
from domainadaptor.lab.reports.paper import paper_value
from domainadaptor.lab.reports.selection import CellRecords, Gap, NumberOf, R, TableRecords

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
    lines: Sequence[TableLine]
    caption: str = ""

    def without_empty_columns(self) -> "PrintedTable":
        """Return the table without columns that are empty in every line."""
        kept = [at for at in range(len(self.columns)) if any(line.cells[at] for line in self.lines)]
        lines = []
        for line in self.lines:
            bold = frozenset(new for new, at in enumerate(kept) if at in line.bold)
            lines.append(replace(line, cells=tuple(line.cells[at] for at in kept), bold=bold))
        return replace(self, columns=tuple(self.columns[at] for at in kept), lines=lines)


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
    difference: float | None = None  # our value minus the paper's
    state: str = "done"  # done, partial, missing, failed
    reason: str = ""


@dataclass(frozen=True)
class View:
    """A table of an experiment, ready to be written."""

    tables: Sequence[PrintedTable] = ()
    more: Sequence[PrintedTable] = ()  # for the page only
    figures: Sequence[ReportFigure] = ()
    numbers: Sequence[ResultNumber] = ()
    problem: str = ""  # why there is nothing to show


@dataclass(frozen=True)
class NumberRow(Generic[R]):
    """A row of a number table."""

    label: str
    group: str
    paper: str | PaperNumber | None
    number: NumberOf[R]
    cells: Mapping[str, CellRecords[R]]


def number_rows(table: TableRecords[R], number: NumberOf[R], paper: str | None = None) -> list[NumberRow[R]]:
    """Return the planned rows with what computes their numbers; `paper` names those that the plan does not."""
    rows = table.layout.rows
    return [NumberRow(row.label, row.group, row.paper or paper, number, table.cells(row)) for row in rows]


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
    plan: PlannedTable, rows: Sequence[NumberRow[R]], measure: str, unit: str, digits: int = 1, *, bold: bool = True
) -> View:
    """Return the printed table and the same numbers for programs; `unit` is the one in the paper's data."""
    shown = [*plan.columns, MEAN] if plan.mean else list(plan.columns)
    ours = estimates(rows, plan.columns)
    theirs = {(at, column): value for at, row in enumerate(rows) for column in shown
              if (value := paper_value(plan.paper, row.paper, column, unit))}  # fmt: skip
    lines = [
        TableLine(row.label, tuple(_text(ours.get((at, c)), row.cells.get(c), digits) for c in shown), row.group)
        for at, row in enumerate(rows)
    ]
    for place, column in enumerate(shown) if bold else ():
        cells = [row.cells.get(column) for row in rows]  # None for the mean, which is there only if complete
        values = [found.mean if (found := ours.get((at, column))) and (cell is None or cell.complete) else None
                  for at, cell in enumerate(cells)]  # fmt: skip
        lines = embolden(lines, place, values)
    numbers = [
        result(
            row,
            column,
            measure,
            ours.get((at, column)),
            paper=theirs.get((at, column)),
            gaps=cell.gaps if cell else (),
        )
        for at, row in enumerate(rows)
        for column in shown
        if (cell := row.cells.get(column)) is None or cell.seeds or cell.gaps
    ]
    return View((_with_paper(PrintedTable(plan.corner, tuple(shown), lines), ours, theirs, digits),), numbers=numbers)


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
    """Put the paper's numbers and the differences into columns next to ours, or into lines below."""
    known = {column for _, column in theirs}
    order = [(at, part) for at, column in enumerate(table.columns) for part in range(3 if column in known else 1)]
    lines = []
    for row, line in enumerate(table.lines):
        parts = []
        for cell, column in zip(line.cells, table.columns, strict=True):
            paper, found = theirs.get((row, column)), ours.get((row, column))
            change = signed(found.mean - paper.mean, digits) if found and paper else ""
            parts.append((cell, with_deviation(paper, digits), change))
        if len(known) > _BESIDE:
            cells = tuple(", ".join(filter(None, (paper.partition(" ±")[0], change))) for _, paper, change in parts)
            lines += [line, *([TableLine("paper, difference", cells, line.group, below=True)] if any(cells) else ())]
        else:
            bold = frozenset(new for new, (at, part) in enumerate(order) if at in line.bold and part == 0)
            lines.append(replace(line, cells=tuple(parts[at][part] for at, part in order), bold=bold))
    if len(known) > _BESIDE:
        return replace(table, lines=lines)
    columns = tuple((table.columns[at], "paper", "difference")[part] for at, part in order)
    return replace(table, columns=columns, lines=lines)


def result(
    row: NumberRow[R] | PlannedRow, column: str, measure: str, found: Estimate | None, *,
    paper: Estimate | None = None, gaps: Sequence[Gap] = (),
) -> ResultNumber:  # fmt: skip
    """Return a number for programs, with its state."""
    failed = any(gap.failed for gap in gaps)
    state = "done" if found and not gaps else "partial" if found else "failed" if failed else "missing"
    reason = "; ".join(dict.fromkeys(gap.reason for gap in gaps if gap.reason))
    mean, deviation, seeds = (found.mean, found.deviation, found.seeds) if found else (None, None, None)
    theirs, spread = (paper.mean, paper.deviation) if paper else (None, None)
    difference = mean - theirs if mean is not None and theirs is not None else None
    place = (row.group, row.label, column, measure)
    return ResultNumber(*place, mean, deviation, seeds, theirs, spread, difference, state, reason)
