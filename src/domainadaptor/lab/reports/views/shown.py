"""What a table of a plan is made into: tables, figures, numbers for programs, and what is missing."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from domainadaptor.lab.reports.cells import Cell, Gap, Record, Shelf
from domainadaptor.lab.reports.grid import Fact, Grid
from domainadaptor.lab.reports.plans import RowPlan, TablePlan


@dataclass(frozen=True)
class Figure:
    """A figure that is drawn when somebody wants it."""

    name: str  # of its file, without the ending
    caption: str
    draw: Callable[[], Any]  # -> a figure of matplotlib


@dataclass(frozen=True)
class Shown:
    """A table of a plan, ready to be written."""

    grids: tuple[Grid, ...] = ()
    folded: tuple[Grid, ...] = ()  # for those who look closer
    figures: tuple[Figure, ...] = ()
    facts: tuple[Fact, ...] = ()
    gaps: tuple[Gap, ...] = ()
    problem: str = ""  # why there is nothing else


@dataclass(frozen=True)
class Ask:
    """A table of a plan, and where to find what it is made of."""

    table: TablePlan
    name: str  # unique on the page, fit for a file
    shelf: Shelf

    def cells(self, row: RowPlan) -> dict[str, Cell]:
        """All cells of a row."""
        return {column: self.shelf.cell(row, column) for column in self.table.columns}

    def records(self, row: RowPlan) -> list[Record]:
        """All records of a row that can be used."""
        return self.shelf.row(row, self.table.columns)

    def views(self, row: RowPlan) -> dict[str, list[Record]]:
        """The records of a row that may be counted together.

        All of them, called "", or those of each column where columns show the same domains again.
        """
        columns: dict[tuple[str, ...], str] = {}
        for column, cell in self.cells(row).items():
            if cell.records:  # a row that does not depend on the column has the same records in each
                columns.setdefault(tuple(record["id"] for record in cell.records), column)
        met = [domain for ids in columns for domain in {name for i in ids for name in self.shelf.records[i]["scores"]}]
        if len(met) == len(set(met)) or len(columns) == 1:
            return {"": self.records(row)}
        return {column: self.shelf.row(row, (column,)) for column in columns.values()}

    def all_records(self) -> list[Record]:
        """All records of the table that can be used, once."""
        found = {record["id"]: record for row in self.table.rows for record in self.records(row)}
        return list(found.values())

    def gaps(self) -> tuple[Gap, ...]:
        """Everything that is missing."""
        return tuple(gap for row in self.table.rows for cell in self.cells(row).values() for gap in cell.gaps)
