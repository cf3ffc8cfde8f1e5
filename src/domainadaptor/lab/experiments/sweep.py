"""All runs of an experiment: which are done, which can run, and running them one by one."""

import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from domainadaptor.errors import AdaptationError
from domainadaptor.lab.experiments.networks import LocatedNetwork
from domainadaptor.lab.experiments.run_spec import RunSpec
from domainadaptor.lab.experiments.runner import Runner, defaults
from domainadaptor.lab.experiments.spec import Experiment
from domainadaptor.lab.experiments.tables import RowSpec, TableSpec
from domainadaptor.lab.records.plans import Plan, PlannedRow, PlannedRun, PlannedTable
from domainadaptor.lab.records.store import AnyRun, Store

OUTPUT = Path("results")  # default of `run --output`
_POLL = 2.0  # seconds until a run that another process does is looked at again


@dataclass(frozen=True)
class SweepCell:
    """A run, and where its number is shown."""

    spec: RunSpec
    id: str | None  # None if data or network are not available
    missing: str  # why it cannot run
    table: int
    row: str
    column: str
    seed: int
    recorded: str | None = None  # the id of its record, if it could run earlier


@dataclass
class Sweep:
    """The runs of an experiment, laid out in tables."""

    experiment: Experiment
    runner: Runner
    cells: list[SweepCell] = field(default_factory=list)
    _located: dict[tuple[str, str | None, int], LocatedNetwork] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for number, table in enumerate(self.experiment.tables):
            for row in table.lines:
                for column in table.columns():
                    for seed in table.seeds:
                        self.cells += self._cells(number, table, row, column, seed)

    def runnable(self) -> dict[str, RunSpec]:
        """Return the runs that can run, by id; those of one network together, so that it is opened once."""
        found = {cell.id: cell.spec for cell in self.cells if cell.id is not None}
        return dict(sorted(found.items(), key=lambda entry: entry[1].network.argument))

    def missing(self) -> dict[str, str]:
        """Return why runs cannot run, by the command that would help, or by the reason if there is none."""
        wanted = [cell for cell in self.cells if cell.id is None and cell.recorded is None]
        return {cell.spec.network.command or cell.missing: cell.missing for cell in wanted}

    def recorded(self) -> list[SweepCell]:
        """Return cells that cannot run now and have a record from when they could."""
        return [cell for cell in self.cells if cell.recorded is not None]

    def look_up(self, store: Store) -> None:
        """Find the records of cells that cannot run now but could when the plan in the store was written."""
        plan = store.plan(self.experiment.name)
        earlier = {
            (table.title, row.label, column): [run.id for seed in seeds for run in seed]
            for table in (plan.tables if plan else ())
            for row in table.rows
            for column, seeds in row.cells.items()
        }
        places: dict[tuple[str, str, str], list[int]] = {}
        for at, cell in enumerate(self.cells):
            places.setdefault((self.experiment.tables[cell.table].title, cell.row, cell.column), []).append(at)
        for key, own in places.items():
            known = earlier.get(key, [])
            for at, name in zip(own, known if len(known) == len(own) else [], strict=False):
                cell = self.cells[at]
                if cell.id is None and name and _is_of(store.run(name), cell.spec):
                    self.cells[at] = replace(cell, recorded=name)

    def write_plan(self, store: Store) -> None:
        """Write the layout; cells that cannot run now but have a record keep it.

        Raises:
            BadFile: It cannot be written.
        """
        self.look_up(store)
        store.write(self.plan(store.folder))

    def plan(self, output: Path = OUTPUT) -> Plan:
        """Return the layout of all tables, with the commands that put their records into a folder."""
        experiment = self.experiment
        words = ["domainadaptor", "run", experiment.file.as_posix()]
        words += [w for name, path in experiment.networks.given.items() for w in ("--checkpoint", f"{name}={path}")]
        return Plan(
            name=experiment.name,
            title=experiment.title,
            about=experiment.about,
            file=experiment.file.name,
            command=shlex.join(words if output == OUTPUT else [*words, "--output", str(output)]),
            remarks=experiment.remarks,
            tables=tuple(self._table(number, table, output) for number, table in enumerate(experiment.tables)),
        )

    def _table(self, number: int, table: TableSpec, output: Path) -> PlannedTable:
        runs: dict[tuple[str, str], dict[int, list[PlannedRun]]] = {}
        for cell in self.cells:
            if cell.table == number:
                seeds = runs.setdefault((cell.row, cell.column), {})
                seeds.setdefault(cell.seed, []).append(_planned(cell, output))
        return PlannedTable(
            title=table.title,
            sample=table.sample(),
            show=table.view(),
            corner=table.corner,
            columns=tuple(table.columns()),
            mean=table.mean and table.sweep is None,
            paper=table.paper,
            rows=tuple(
                PlannedRow(
                    label=row.label,
                    paper=row.paper,
                    group=row.group,
                    cells={name: tuple(map(tuple, runs[row.label, name].values())) for name in table.columns()},
                )
                for row in table.lines
            ),
        )

    def _cells(self, number: int, table: TableSpec, row: RowSpec, column: str, seed: int) -> Iterator[SweepCell]:
        for spec in table.runs(row, column, seed, self._locate):
            name, missing = None, spec.network.missing
            if not missing:
                try:
                    name = self.runner.settings(spec).id
                except AdaptationError as error:
                    missing = str(error)
                except Exception as error:  # a data set may be a user's own, and raise anything
                    missing = f"{type(error).__name__}: {error}"
            yield SweepCell(spec, name, missing, number, row.label, column, seed)

    def _locate(self, network: str, target: str | None, seed: int) -> LocatedNetwork:
        key = (network, target, seed)
        if key not in self._located:
            self._located[key] = self.experiment.networks.locate(network, target, seed, self.runner.dataset)
        return self._located[key]


def _planned(cell: SweepCell, output: Path) -> PlannedRun:
    command = cell.spec.command()  # that makes the record, or the network if that is missing
    if not cell.spec.network.missing:
        command += f" {shlex.join(['--output', str(output)])}"
    return PlannedRun(id=cell.id or cell.recorded or "", command=command, missing=cell.missing)


def _is_of(record: AnyRun | None, spec: RunSpec) -> bool:
    """Return whether a record has these settings and a network trained like this, on any images and weights."""
    if record is None or record.failed or record.run.checkpoint.name != spec.network.label:
        return False
    run = record.run
    if not spec.network.may_be_trained_by(run.checkpoint.training):
        return False
    return spec.settings(run.data, run.checkpoint, run.validation).id == run.id


@dataclass(frozen=True)
class RunProgress:
    """Progress callbacks."""

    begun: Callable[[RunSpec, int, int], None] = lambda *_: None  # run, how many are done, of how many
    images: Callable[[int, int], None] = lambda *_: None  # images of the run that are done, of how many
    ended: Callable[[RunSpec, AnyRun], None] = lambda *_: None  # run, record


def run_sweep(sweep: Sweep, store: Store, progress: RunProgress) -> dict[str, str]:
    """Do every run that has no record yet. A failed run is recorded as failed, and the rest continues.

    A record made when the method had other defaults counts as none. Other processes may do the same sweep: a run that
    one of them works on is left to it.

    Returns:
        The ids of failed runs -> why.

    Raises:
        BadFile: A record cannot be written.
    """
    sweep.write_plan(store)
    specs = sweep.runnable()
    for spec in specs.values():
        sweep.runner.write_provenance(spec, store)
    earlier = {name: store.run(name) for name in specs}
    waiting = list(specs)
    failed: dict[str, str] = {}
    while waiting:
        busy = []
        for at, name in enumerate(waiting):
            with store.claim(name) as own:
                record = store.run(name) if own else None
                if not own:
                    busy.append(name)
                elif record is not None and record.failed and record != earlier[name]:
                    failed[name] = record.failed  # another process has just tried it
                elif not is_current(record, specs[name]):
                    progress.begun(specs[name], len(specs) - len(waiting) + at, len(specs))
                    record = _attempt(specs[name], sweep.runner, progress)
                    store.write(record)
                    progress.ended(specs[name], record)
                    failed |= {name: record.failed} if record.failed else {}
        waiting = busy
        if waiting:
            time.sleep(_POLL)
    return failed


def run_once(spec: RunSpec, runner: Runner, store: Store, images: Callable[[int, int], None]) -> AnyRun:
    """Return the record of a run from the store, or do the run; one that another process does is waited for.

    Raises:
        BadFile: The record cannot be written.
    """
    runner.write_provenance(spec, store)
    name = runner.settings(spec).id
    while True:
        with store.claim(name) as own:
            if own:
                record = store.run(name)
                if record is None or not is_current(record, spec):
                    record = runner.run(spec, images)
                    store.write(record)
                return record
        time.sleep(_POLL)


def is_current(record: AnyRun | None, spec: RunSpec) -> bool:
    """Return whether there is a result, made with the defaults that the method has now."""
    if record is None or record.failed:
        return False
    now = defaults(spec)  # an option that is new since then does not count
    return all(name not in now or now[name] == value for name, value in record.defaults.items())


def _attempt(spec: RunSpec, runner: Runner, progress: RunProgress) -> AnyRun:
    try:
        return runner.run(spec, progress.images)
    except AdaptationError as error:
        return runner.failed(spec, (str(error).strip().splitlines() or [""])[0] or type(error).__name__)
    except Exception as error:  # a method may be a user's own, and raise anything
        reason = (str(error).strip().splitlines() or [""])[0]
        return runner.failed(spec, f"{type(error).__name__}: {reason}" if reason else type(error).__name__)
