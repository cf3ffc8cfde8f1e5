"""The records of a table, cell by cell and seed by seed, and what is missing."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from domainadaptor.lab.records.plans import PlannedRow, PlannedRun, PlannedTable
from domainadaptor.lab.records.runs import EvaluationRecord, MeasurementRecord

AnyRecord = EvaluationRecord | MeasurementRecord
R = TypeVar("R", bound=AnyRecord)
NumberOf = Callable[[Sequence[R]], float | None]  # from records that are counted together to a number


class Gap(NamedTuple):
    """A run without a usable record."""

    row: str
    column: str
    failed: bool  # or not run yet
    reason: str  # why it failed or could not be run, where known


@dataclass(frozen=True)
class CellRecords(Generic[R]):
    """The records of one cell of a table."""

    seeds: tuple[tuple[R, ...], ...]  # complete seeds only
    gaps: tuple[Gap, ...]
    expected: int  # seeds

    @property
    def complete(self) -> bool:
        """Whether nothing is missing."""
        return bool(self.seeds) and not self.gaps

    @property
    def records(self) -> list[R]:
        """The records of all seeds."""
        return [record for seed in self.seeds for record in seed]

    def values(self, number: NumberOf[R]) -> list[float]:
        """Return one value per seed: the mean over its records, each taken alone."""
        each = [[value for record in seed if (value := number([record])) is not None] for seed in self.seeds]
        return [statistics.fmean(own) for own, seed in zip(each, self.seeds, strict=True) if len(own) == len(seed)]


@dataclass(frozen=True)
class TableRecords(Generic[R]):
    """A table of an experiment and the records it is made of."""

    layout: PlannedTable
    name: str  # unique in a report, usable as a file name
    records: Mapping[str, R]
    kind: str  # "evaluation", or the measurement that the table shows

    def cell(self, row: PlannedRow, column: str) -> CellRecords[R]:
        """Return the records of one cell."""
        seeds = row.cells.get(column, ())
        gaps = [[gap for run in seed if (gap := self._gap(row, column, run))] for seed in seeds]
        complete = [seed for seed, missing in zip(seeds, gaps, strict=True) if seed and not missing]
        return CellRecords(
            tuple(tuple(self.records[run.id] for run in seed) for seed in complete),
            tuple(gap for missing in gaps for gap in missing),
            len(seeds),
        )

    def cells(self, row: PlannedRow) -> dict[str, CellRecords[R]]:
        """Return all cells of a row, by column."""
        return {column: self.cell(row, column) for column in self.layout.columns}

    def of_row(self, row: PlannedRow, columns: Iterable[str] | None = None) -> list[R]:
        """Return every usable record of a row once."""
        chosen = self.layout.columns if columns is None else columns
        runs = [run for column in chosen for seed in row.cells.get(column, ()) for run in seed]
        return [self.records[name] for name in dict.fromkeys(run.id for run in runs if self.problem(run) is None)]

    def all_records(self) -> list[R]:
        """Return every usable record of the table once."""
        return list({record.id: record for row in self.layout.rows for record in self.of_row(row)}.values())

    def gaps(self) -> list[Gap]:
        """Return everything that is missing."""
        return [gap for row in self.layout.rows for cell in self.cells(row).values() for gap in cell.gaps]

    def problem(self, run: PlannedRun) -> str | None:
        """Return why a run has no usable record, "" if it was not run; None if it has one."""
        record = self.records.get(run.id)
        if record is None:
            return ""
        if record.failed:
            return record.failed
        kind = record.run.measure if isinstance(record, MeasurementRecord) else "evaluation"
        return None if kind == self.kind else f"expected a record of kind {self.kind}, got {kind}"

    def _gap(self, row: PlannedRow, column: str, run: PlannedRun) -> Gap | None:
        why = self.problem(run)
        if why is None:
            return None
        return Gap(row.label, column, bool(why), why if why or run.id else run.missing)


def countable(table: TableRecords[EvaluationRecord], row: PlannedRow) -> dict[str, list[EvaluationRecord]]:
    """Return the records of a row that may be counted together.

    All of them under "", or those of each column where several columns show the same domains.
    """
    columns: dict[tuple[str, ...], str] = {}
    for column, cell in table.cells(row).items():
        if cell.records:  # a row that does not depend on the column has the same records in each
            columns.setdefault(tuple(record.id for record in cell.records), column)
    met = [domain for ids in columns for domain in {name for i in ids for name in table.records[i].scores}]
    if len(met) == len(set(met)) or len(columns) == 1:
        return {"": table.of_row(row)}
    return {column: table.of_row(row, (column,)) for column in columns.values()}
