"""What `run` shows of an experiment: the cell that runs, how much is left, and the tables so far."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.progress import Progress
from rich.table import Column, Table
from rich.text import Text

from domainadaptor.cli.terminal import Bar, bar_columns, err, out

if TYPE_CHECKING:  # these take seconds to import
    from domainadaptor.lab.experiments.run_spec import Cell
    from domainadaptor.lab.experiments.store import Store
    from domainadaptor.lab.experiments.sweep import Grid

_MEASURED = ("statistics-distances", "statistics-variance", "classifier-norms", "loss-curves")  # no accuracies


class Tables:
    """The tables of an experiment as they fill: mean accuracy over seeds."""

    def __init__(self, grid: "Grid", store: "Store") -> None:
        self._tables = grid.plan()["tables"]
        self._store = store
        self._known: dict[str, float] = {}

    def show(self) -> None:
        """Prints them all."""
        for number in range(len(self._tables)):
            if (table := self.table(number)) is not None:
                out.print(table)

    def table(self, number: int) -> Table | None:
        """One of them; None if it has measurements instead of accuracies."""
        from domainadaptor.lab.reports.grid import number as written

        table = self._tables[number]
        if table["show"] in _MEASURED:
            return None
        headings = [table["corner"], *map(str, table["columns"]), *(["mean"] if table["mean"] else [])]
        shown = Table(*(Column(Text(heading)) for heading in headings))  # names of folders are no markup
        shown.title = Text(f"{table['title']}: accuracy in percent; {table['sample']}", style="table.title")
        for row in table["rows"]:
            values = [self._mean(row["cells"][column]) for column in table["columns"]]
            whole = [_average(values)] if table["mean"] else []
            shown.add_row(Text(row["label"]), *(written(value) for value in [*values, *whole]))
        return shown

    def _mean(self, cell: list[Any]) -> float | None:
        return _average([
            _average([self._accuracy(name) for name in (entry if isinstance(entry, list) else [entry])])
            for entry in cell
        ])  # fmt: skip

    def _accuracy(self, name: str | None) -> float | None:
        if name is None or name in self._known:
            return None if name is None else self._known[name]
        record = self._store.peek(name)
        if record is None or "scores" not in record:
            return None
        images, right = (sum(score[key] for score in record["scores"].values()) for key in ("images", "right"))
        self._known[name] = 100 * right / images
        return self._known[name]


def _average(values: list[float | None]) -> float | None:
    """The mean; None where one is missing, or there is none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


class Display:
    """A bar with the table so far below it on a terminal, one line a cell elsewhere."""

    def __init__(self, grid: "Grid", tables: Tables, progress: "_BarAndTable", bar: Bar) -> None:
        self.cautions: dict[str, None] = {}
        self._grid, self._tables = grid, tables
        self._progress, self._bar = progress, bar
        self._many = len({place.cell.network.label for place in grid.places}) > 1
        self._begun = time.perf_counter()
        self._first: int | None = None
        self._text = ""

    def begun(self, cell: "Cell", done: int, total: int) -> None:
        """A cell is next."""
        if self._first is None:
            self._first = done
        self._done, self._total = done, total
        self._text = self._name(cell)
        self._bar.at(done, total)
        self._bar.say(self._text)
        if err.is_terminal:
            self._progress.table = self._tables.table(self._place(cell).table)

    def images(self, done: int, total: int) -> None:
        """So many images of it."""
        self._bar.say(f"{self._text}: image {done:,} of {total:,}")

    def ended(self, cell: "Cell", record: dict[str, Any]) -> None:
        """What came of it: a line where there is no table to look at, or where it failed."""
        self.cautions |= dict.fromkeys(record.get("cautions", ()))
        assert self._first is not None
        spent = time.perf_counter() - self._begun
        left = spent / (self._done + 1 - self._first) * (self._total - self._done - 1)
        if not err.is_terminal or "failed" in record:
            err.print(
                f"[{self._done + 1}/{self._total}] {self._text}: {_outcome(record)}; about {left / 60:.0f} min left",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )

    def _name(self, cell: "Cell") -> str:
        """By row and column, as in the table, with what else tells it from its neighbours."""
        place = self._place(cell)
        table = self._grid.experiment.tables[place.table]
        words = f"{self._grid.experiment.name}: {place.row}"
        words += f", {table.sweep[0]} {place.column}" if table.sweep else ""
        words += f" on {'+'.join(cell.domains)}"
        words += f", {cell.network.label}" if self._many else ""
        return words + (f", seed {cell.seed}" if len(table.seeds) > 1 else "")

    def _place(self, cell: "Cell") -> Any:
        return next(place for place in self._grid.places if place.cell is cell)


class _BarAndTable(Progress):
    table: Table | None = None

    def get_renderables(self) -> Iterable[RenderableType]:
        """The bar first: what does not fit on the screen is cut off below."""
        yield self.make_tasks_table(self.tasks)
        if self.table is not None:
            yield self.table


@contextmanager
def display(grid: "Grid", tables: Tables, total: int) -> Iterator[Display]:
    """Shows how a run goes while the context lasts."""
    columns = bar_columns()
    with _BarAndTable(*columns, console=err, transient=True, expand=True, disable=not err.is_terminal) as progress:
        yield Display(grid, tables, progress, Bar(progress, progress.add_task("", total=total)))


def _outcome(record: dict[str, Any]) -> str:
    if "failed" in record:
        return f"failed: {record['failed']}"
    if "values" in record:
        return "measured"
    images = sum(score["images"] for score in record["scores"].values())
    source, now = (sum(score[key] for score in record["scores"].values()) for key in ("source_right", "right"))
    return f"{100 * source / images:.1f} -> {100 * now / images:.1f} %, {record['took']:.0f} s"
