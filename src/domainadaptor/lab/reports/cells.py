"""A cell of a table: the records of its seeds, what they come to, and what is missing."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from domainadaptor.lab.reports.plans import RowPlan, Wanted

Record = Mapping[str, Any]
Number = Callable[[Sequence[Record]], float | None]  # from the records that are counted together to a number


@dataclass(frozen=True)
class Gap:
    """A record that is not there, why, and what to do."""

    row: str
    column: str
    failed: str  # the reason; empty where it was not run yet
    command: str
    missing: str = ""  # why it could not run, where that is known

    @property
    def reason(self) -> str:
        """Why there is no number; empty where it was only not run yet."""
        return self.failed or self.missing


@dataclass(frozen=True)
class Spread:
    """A number over seeds."""

    mean: float
    deviation: float | None  # of the population; None for one seed
    seeds: int


@dataclass(frozen=True)
class Cell:
    """The records of a cell, seed by seed."""

    seeds: tuple[tuple[Record, ...], ...]  # of those seeds whose records are all there
    gaps: tuple[Gap, ...]
    expected: int  # seeds

    @property
    def whole(self) -> bool:
        """Whether nothing is missing."""
        return bool(self.seeds) and not self.gaps

    @property
    def records(self) -> list[Record]:
        """Of all seeds."""
        return [record for seed in self.seeds for record in seed]

    def values(self, number: Number) -> list[float]:
        """One a seed: of its record, or the mean over its records, each by itself."""
        found = []
        for seed in self.seeds:
            each = [value for record in seed if (value := number([record])) is not None]
            if len(each) == len(seed):
                found.append(statistics.fmean(each))
        return found

    def spread(self, number: Number) -> Spread | None:
        """Mean and deviation over seeds."""
        return spread(self.values(number))


def spread(values: Sequence[float]) -> Spread | None:
    """Mean and population deviation; None of nothing."""
    if not values:
        return None
    return Spread(statistics.fmean(values), statistics.pstdev(values) if len(values) > 1 else None, len(values))


def mean_over(cells: Sequence[Cell], number: Number) -> Spread | None:
    """The mean over the cells of a row, with the deviation over seeds of that mean; None if anything is missing."""
    if not cells or not all(cell.whole for cell in cells):
        return None
    columns = [cell.values(number) for cell in cells]
    if any(len(values) < len(cell.seeds) for values, cell in zip(columns, cells, strict=True)):
        return None
    if len({len(values) for values in columns}) > 1:  # seeds cannot be paired
        return Spread(statistics.fmean(map(statistics.fmean, columns)), None, min(map(len, columns)))
    return spread([statistics.fmean(values) for values in zip(*columns, strict=True)])


@dataclass(frozen=True)
class Shelf:
    """Where the records of a table are looked for."""

    records: Mapping[str, Record]
    damaged: Mapping[str, str]  # file -> why
    kind: str  # "evaluation", or the measurement that the table is about

    def cell(self, row: RowPlan, column: str) -> Cell:
        """The records of one cell, and what is missing of them."""
        whole, gaps = [], []
        seeds = row.cells.get(column, ())
        for seed in seeds:
            missing = [gap for wanted in seed if (gap := self._gap(row, column, wanted))]
            gaps += missing
            if not missing and seed:
                whole.append(tuple(self.records[wanted.id] for wanted in seed))
        return Cell(tuple(whole), tuple(gaps), len(seeds))

    def states(self, runs: Iterable[Wanted]) -> tuple[int, int, int]:
        """How many are there, failed, and were not run yet."""
        reasons = [self._why(wanted) for wanted in runs]
        waiting = reasons.count("")
        done = reasons.count(None)
        return done, len(reasons) - done - waiting, waiting

    def has(self, wanted: Wanted) -> bool:
        """Whether there is such a record that can be used."""
        return self._why(wanted) is None

    def row(self, row: RowPlan, columns: Iterable[str]) -> list[Record]:
        """Every record of a row that can be used, once."""
        wanted = [entry for column in columns for seed in row.cells.get(column, ()) for entry in seed]
        return [self.records[name] for name in dict.fromkeys(w.id for w in wanted if self.has(w))]

    def _gap(self, row: RowPlan, column: str, wanted: Wanted) -> Gap | None:
        why = self._why(wanted)
        if why is None:
            return None
        made = self.records.get(wanted.id, {})
        missing = "" if why or wanted.id else wanted.missing
        return Gap(row.label, column, why, wanted.command or str(made.get("command", "")), missing)

    def _why(self, wanted: Wanted) -> str | None:
        """Why there is no record to be used, "" where it was not run yet; None where there is one."""
        record = self.records.get(wanted.id)
        if record is None:
            reason = self.damaged.get(f"records/{wanted.id}.json", "")
            return f"the record is damaged: {reason}" if reason else ""
        if "failed" in record:
            return str(record["failed"])
        kind = record["run"]["measure"] if record["kind"] == "measurement" else "evaluation"
        return None if kind == self.kind else f"the record is of the kind {kind}, not {self.kind}"
