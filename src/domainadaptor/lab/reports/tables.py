"""Tables of one number a cell, over seeds, with the paper's numbers beside ours."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from domainadaptor.lab.reports.cells import Cell, Number, Spread, mean_over
from domainadaptor.lab.reports.grid import Entry, Fact, Grid, Line, embolden, number, signed, with_deviation
from domainadaptor.lab.reports.paper import PaperValue, paper_value
from domainadaptor.lab.reports.plans import PaperColumns, PaperRow

MEAN = "mean"
_BESIDE = 2  # so many columns have room for the paper's number and the difference beside them
_BELOW = "paper, difference"


@dataclass(frozen=True)
class NumberRow:
    """A line of such a table."""

    label: str
    group: str
    paper: PaperRow | None
    number: Number
    cells: Mapping[str, Cell]


@dataclass(frozen=True)
class Kind:
    """What the numbers are."""

    what: str  # for programs
    unit: str  # in the paper's data
    digits: int = 1
    best: str = "highest"  # or lowest, or none


@dataclass(frozen=True)
class _Found:
    ours: Spread | None
    paper: PaperValue | None
    cell: Cell | None  # None for the mean

    @property
    def difference(self) -> float | None:
        return None if self.ours is None or self.paper is None else self.ours.mean - self.paper.value


def number_table(
    corner: str, columns: Sequence[str], mean: bool, rows: Sequence[NumberRow], paper: PaperColumns | None, kind: Kind
) -> tuple[Grid, list[Fact]]:
    """The table, and the same numbers for programs."""
    shown = [*columns, MEAN] if mean else list(columns)
    found = [[_find(row, column, columns, paper, kind) for column in shown] for row in rows]
    facts = [
        _fact(row, column, entry, kind) for row, line in zip(rows, found, strict=True)
        for column, entry in zip(shown, line, strict=True) if entry.cell is None or entry.cell.seeds or entry.cell.gaps
    ]  # fmt: skip
    with_paper = [at for at in range(len(shown)) if any(line[at].paper for line in found)]
    lines = [
        Line(row.label, tuple(_entry(entry, kind.digits) for entry in line), row.group)
        for row, line in zip(rows, found, strict=True)
    ]
    if kind.best != "none":
        for at in range(len(shown)):
            values = [line[at].ours.mean if line[at].ours and _comparable(line[at]) else None for line in found]  # type: ignore[union-attr]
            lines = embolden(lines, at, values, kind.best == "lowest")
    if not with_paper:
        return Grid(corner, tuple(shown), tuple(lines)), facts
    if len(with_paper) <= _BESIDE:
        return _beside(corner, shown, lines, found, with_paper, kind.digits), facts
    return Grid(corner, tuple(shown), tuple(_below(lines, found, kind.digits))), facts


def _find(row: NumberRow, column: str, columns: Sequence[str], paper: PaperColumns | None, kind: Kind) -> _Found:
    theirs = paper_value(paper, row.paper, column, kind.unit)
    if column in row.cells:
        cell = row.cells[column]
        return _Found(cell.spread(row.number), theirs, cell)
    return _Found(mean_over([row.cells[name] for name in columns], row.number), theirs, None)


def _comparable(found: _Found) -> bool:
    """Whether it is of all its seeds."""
    return found.cell is None or found.cell.whole


def _entry(found: _Found, digits: int) -> Entry:
    text = with_deviation(found.ours, digits)
    cell = found.cell
    if cell is None:
        return Entry(text)
    if cell.gaps:
        reasons = "; ".join(dict.fromkeys(gap.failed for gap in cell.gaps if gap.failed))
        if found.ours is None:
            missing = "; ".join(dict.fromkeys(gap.missing for gap in cell.gaps if gap.missing))
            return Entry("failed" if reasons else "missing", muted=True, hint=reasons or missing or "not run yet")
        done = f"{found.ours.seeds} of {cell.expected}"
        return Entry(f"{text} ({done})", hint=f"{done} seeds; {reasons or 'the others were not run yet'}")
    if cell.seeds and found.ours is None:
        return Entry("none", muted=True, hint="the records do not hold this number")
    return Entry(text)


def _beside(
    corner: str, shown: Sequence[str], lines: Sequence[Line], found: Sequence[Sequence[_Found]],
    with_paper: Sequence[int], digits: int,
) -> Grid:  # fmt: skip
    columns: list[str] = []
    theirs: list[int] = []
    for at, column in enumerate(shown):
        columns.append(column)
        if at in with_paper:
            theirs += [len(columns), len(columns) + 1]
            columns += ["paper", "difference"]
    wider = []
    for line, row in zip(lines, found, strict=True):
        entries: list[Entry] = []
        for at, entry in enumerate(line.entries):
            entries.append(entry)
            if at in with_paper:
                entries += [
                    Entry(with_deviation(row[at].paper, digits), muted=True),
                    Entry(signed(row[at].difference, digits), muted=True),
                ]
        wider.append(Line(line.label, tuple(entries), line.group))
    return Grid(corner, tuple(columns), tuple(wider), paper_columns=tuple(theirs))


def _below(lines: Sequence[Line], found: Sequence[Sequence[_Found]], digits: int) -> list[Line]:
    """Each line followed by one with the paper's numbers and the differences, where the paper has any."""
    longer: list[Line] = []
    for line, row in zip(lines, found, strict=True):
        longer.append(line)
        if any(entry.paper for entry in row):
            texts = [
                ", ".join(part for part in (number(e.paper.value, digits), signed(e.difference, digits)) if part)
                if e.paper
                else ""
                for e in row
            ]
            longer.append(Line(_BELOW, tuple(Entry(text, muted=True) for text in texts), line.group, muted=True))
    return longer


def _fact(row: NumberRow, column: str, found: _Found, kind: Kind) -> Fact:
    gaps = found.cell.gaps if found.cell else ()
    failed = "; ".join(dict.fromkeys(gap.failed for gap in gaps if gap.failed))
    whole = found.ours is not None and not gaps
    state = "done" if whole else "partial" if found.ours else "failed" if failed else "missing"
    return Fact(
        row.label,
        column,
        kind.what,
        found.ours.mean if found.ours else None,
        found.ours.deviation if found.ours else None,
        found.ours.seeds if found.ours else 0,
        row.group,
        found.paper.value if found.paper else None,
        found.paper.deviation if found.paper else None,
        state,
        "; ".join(dict.fromkeys(gap.reason for gap in gaps if gap.reason)),
        " && ".join(dict.fromkeys(gap.command for gap in gaps if gap.command)),
    )
