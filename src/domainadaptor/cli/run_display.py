"""What `run` shows of an experiment: the current run, how much is left, and the tables so far."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.progress import Progress
from rich.table import Column, Table
from rich.text import Text

from domainadaptor.cli.terminal import Bar, bar_columns, err, out, print_text

if TYPE_CHECKING:  # these take seconds to import
    from domainadaptor.lab.experiments.run_spec import RunSpec
    from domainadaptor.lab.experiments.sweep import Sweep, SweepCell
    from domainadaptor.lab.records.plans import PlannedRun
    from domainadaptor.lab.records.store import AnyRun, Store


class RunTables:
    """The tables of an experiment as they fill: mean accuracy over seeds."""

    def __init__(self, sweep: "Sweep", store: "Store") -> None:
        self._tables = sweep.plan().tables
        self._store = store
        self._known: dict[str, float] = {}

    def show(self) -> None:
        """Print them all."""
        for number in range(len(self._tables)):
            if (table := self.table(number)) is not None:
                out.print(table)

    def table(self, number: int) -> Table | None:
        """Return one of them; None if it has no accuracies, but another measurement."""
        table = self._tables[number]
        rows = [[self._mean(row.cells[column]) for column in table.columns] for row in table.rows]
        if not any(value is not None for values in rows for value in values):
            return None
        headings = [table.corner, *table.columns, *(["mean"] if table.mean else [])]
        shown = Table(*(Column(Text(heading)) for heading in headings))  # names of folders are not markup
        shown.title = Text(f"{table.title}: accuracy in percent; {table.sample}", style="table.title")
        for row, values in zip(table.rows, rows, strict=True):
            whole = [_average(values)] if table.mean else []
            shown.add_row(Text(row.label), *("" if value is None else f"{value:.1f}" for value in [*values, *whole]))
        return shown

    def _mean(self, seeds: "tuple[tuple[PlannedRun, ...], ...]") -> float | None:
        return _average([_average([self._accuracy(run.id) for run in seed]) for seed in seeds])

    def _accuracy(self, name: str) -> float | None:
        if name not in self._known:
            record = self._store.run(name) if name else None
            if record is None or record.kind != "evaluation" or not record.scores:
                return None
            images, right = (sum(getattr(s, key) for s in record.scores.values()) for key in ("images", "right"))
            self._known[name] = 100 * right / images
        return self._known[name]


def _average(values: list[float | None]) -> float | None:
    """Return the mean; None if a value is missing, or there is none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


class RunDisplay:
    """A progress bar with the current table below it on a terminal, one line per run elsewhere."""

    def __init__(self, sweep: "Sweep", tables: RunTables, progress: "_BarAndTable", bar: Bar) -> None:
        self.cautions: dict[str, None] = {}
        self._sweep, self._tables = sweep, tables
        self._progress, self._bar = progress, bar
        self._many = len({cell.spec.network.label for cell in sweep.cells}) > 1
        self._started = time.perf_counter()
        self._first: int | None = None
        self._text = ""

    def begun(self, spec: "RunSpec", done: int, total: int) -> None:
        """Show the next run."""
        self._first = done if self._first is None else self._first
        self._done, self._total = done, total
        self._text = self._name(spec)
        self._bar.at(done, total)
        self._bar.say(self._text)
        if err.is_terminal:
            self._progress.table = self._tables.table(self._cell(spec).table)

    def images(self, done: int, total: int) -> None:
        """Show how many of its images are done."""
        self._bar.say(f"{self._text}: image {done:,} of {total:,}")

    def ended(self, spec: "RunSpec", record: "AnyRun") -> None:
        """Print the result if there is no table to look at, or if it failed."""
        self.cautions |= dict.fromkeys(record.cautions)
        assert self._first is not None
        spent = time.perf_counter() - self._started
        left = spent / (self._done + 1 - self._first) * (self._total - self._done - 1)
        if not err.is_terminal or record.failed:
            text = f"[{self._done + 1}/{self._total}] {self._text}: {_outcome(record)}; about {left / 60:.0f} min left"
            print_text(text, err)

    def _name(self, spec: "RunSpec") -> str:
        """Return row and column, as in the table, and what else distinguishes the run."""
        cell = self._cell(spec)
        table = self._sweep.experiment.tables[cell.table]
        words = f"{self._sweep.experiment.name}: {cell.row}"
        words += f", {table.sweep.option} {cell.column}" if table.sweep else ""
        words += f" on {'+'.join(spec.domains)}"
        words += f", {spec.network.label}" if self._many else ""
        return words + (f", seed {spec.seed}" if len(table.seeds) > 1 else "")

    def _cell(self, spec: "RunSpec") -> "SweepCell":
        return next(cell for cell in self._sweep.cells if cell.spec is spec)


class _BarAndTable(Progress):
    table: Table | None = None

    def get_renderables(self) -> Iterable[RenderableType]:
        """Return the bar first: what does not fit on the screen is cut off at the bottom."""
        yield self.make_tasks_table(self.tasks)
        if self.table is not None:
            yield self.table


@contextmanager
def display_run(sweep: "Sweep", tables: RunTables) -> Iterator[RunDisplay]:
    """Show the progress of an experiment while the context lasts."""
    columns = bar_columns()
    with _BarAndTable(*columns, console=err, transient=True, expand=True, disable=not err.is_terminal) as progress:
        bar = Bar(progress, progress.add_task("", total=len(sweep.runnable())))
        yield RunDisplay(sweep, tables, progress, bar)


def _outcome(record: "AnyRun") -> str:
    if record.failed:
        return f"failed: {record.failed}"
    if record.kind != "evaluation":
        return "measured"
    images, source, now = (
        sum(getattr(score, key) for score in record.scores.values()) for key in ("images", "source_right", "right")
    )
    return f"{100 * source / images:.1f} -> {100 * now / images:.1f} %, {record.took:.0f} s"
