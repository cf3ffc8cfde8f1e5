"""What `run` shows of an experiment: the current run, how much is left, and the tables."""

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.table import Column, Table
from rich.text import Text

from domainadaptor.cli.terminal import Bar, err, out, print_text

if TYPE_CHECKING:  # these take seconds to import
    from domainadaptor.lab.experiments.run_spec import RunSpec
    from domainadaptor.lab.experiments.sweep import Sweep
    from domainadaptor.lab.records.plans import PlannedRun
    from domainadaptor.lab.records.store import AnyRun, Store


def show_tables(sweep: "Sweep", store: "Store") -> None:
    """Print the tables of an experiment that have accuracies: the mean over seeds."""
    from domainadaptor.lab.reports.counts import accuracy

    def value(run: "PlannedRun") -> float | None:
        record = store.run(run.id) if run.id else None
        return accuracy([record]) if record is not None and record.kind == "evaluation" and record.scores else None

    for table in sweep.plan().tables:
        rows = {
            row.label: [_mean(_mean(map(value, seed)) for seed in row.cells[column]) for column in table.columns]
            for row in table.rows
        }
        if all(number is None for numbers in rows.values() for number in numbers):
            continue  # it shows another measurement
        headings = [table.corner, *table.columns, *(["mean"] if table.mean else [])]
        shown = Table(*(Column(Text(heading)) for heading in headings))  # names of folders are not markup
        shown.title = Text(f"{table.title}: accuracy in percent; {table.sample}", style="table.title")
        for label, numbers in rows.items():
            whole = [_mean(numbers)] if table.mean else []
            shown.add_row(Text(label), *("" if number is None else f"{number:.1f}" for number in [*numbers, *whole]))
        out.print(shown)


def _mean(values: Iterable[float | None]) -> float | None:
    """Return the mean; None if a value is missing, or there is none."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) / len(known) if known and len(known) == len(found) else None


class RunDisplay:
    """A progress bar on a terminal, one line per run elsewhere."""

    def __init__(self, sweep: "Sweep", bar: Bar) -> None:
        self.cautions: dict[str, None] = {}
        self._sweep, self._bar = sweep, bar
        self._started, self._ended = time.perf_counter(), 0

    def begun(self, spec: "RunSpec", done: int, total: int) -> None:
        """Show the next run: row and column, as in the table, and what else distinguishes it."""
        cell = next(cell for cell in self._sweep.cells if cell.spec is spec)
        table = self._sweep.experiment.tables[cell.table]
        text = f"{self._sweep.experiment.name}: {cell.row}"
        text += f", {table.sweep.option} {cell.column}" if table.sweep else ""
        text += f" on {'+'.join(spec.domains)}"
        text += f", {spec.network.label}" if len({c.spec.network.label for c in self._sweep.cells}) > 1 else ""
        text += f", seed {spec.seed}" if len(table.seeds) > 1 else ""
        self._text, self._done, self._total = text, done + 1, total
        self._bar.show(text, done, total)

    def images(self, done: int, total: int) -> None:
        """Show how many of its images are done."""
        self._bar.say(f"{self._text}: image {done:,} of {total:,}")

    def ended(self, spec: "RunSpec", record: "AnyRun") -> None:
        """Print the result if there is no bar to look at, or if it failed."""
        from domainadaptor.lab.reports.counts import accuracy

        self.cautions |= dict.fromkeys(record.cautions)
        self._ended += 1
        left = (time.perf_counter() - self._started) / self._ended * (self._total - self._done) / 60
        outcome = f"failed: {record.failed}" if record.failed else "measured"
        if record.kind == "evaluation" and not record.failed:
            outcome = f"{accuracy([record], 'source'):.1f} -> {accuracy([record]):.1f} %, {record.took:.0f} s"
        if not err.is_terminal or record.failed:
            print_text(f"[{self._done}/{self._total}] {self._text}: {outcome}; about {left:.0f} min left", err)
