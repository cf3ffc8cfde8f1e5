"""All runs of an experiment: which are done, which can run, and running them one by one."""

import shlex
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import product
from pathlib import Path

from domainadaptor.errors import AdaptationError
from domainadaptor.lab.experiments.run_spec import RunSpec
from domainadaptor.lab.experiments.runner import Runner, defaults
from domainadaptor.lab.experiments.spec import Experiment
from domainadaptor.lab.experiments.tables import TableSpec
from domainadaptor.lab.records.plans import Plan, PlannedRow, PlannedRun, PlannedTable
from domainadaptor.lab.records.store import AnyRun, Store

OUTPUT = Path("results")  # default of `run --output`
_POLL = 2.0  # seconds until a run that another process does is looked at again


@dataclass
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
    """The runs of an experiment, laid out in tables; without a runner only their records can be looked at."""

    experiment: Experiment
    runner: Runner | None = None
    cells: list[SweepCell] = field(default_factory=list)

    def __post_init__(self) -> None:
        networks = self.experiment.networks
        locate = cache(partial(networks.locate, dataset=self.runner.dataset) if self.runner else networks.describe)
        for number, table in enumerate(self.experiment.tables):
            for row, column, seed in product(table.lines, table.columns(), table.seeds):
                for spec in table.runs(row, column, seed, locate):
                    self.cells.append(SweepCell(spec, *self._identify(spec), number, row.label, column, seed))

    def _identify(self, spec: RunSpec) -> tuple[str | None, str]:
        """Return the id of a run, or why it cannot run."""
        if spec.network.missing or self.runner is None:
            return None, spec.network.missing
        try:
            return self.runner.settings(spec).id, ""
        except Exception as error:  # a data set may be a user's own, and raise anything
            return None, _why(error)

    def runnable(self) -> dict[str, RunSpec]:
        """Return the runs that can run, by id; those of one network together, so that it is opened once."""
        found = {cell.id: cell.spec for cell in self.cells if cell.id is not None}
        return dict(sorted(found.items(), key=lambda entry: entry[1].network.argument))

    def missing(self) -> list[SweepCell]:
        """Return the cells that cannot run and have no record."""
        return [cell for cell in self.cells if cell.id is None and cell.recorded is None]

    def trainings(self) -> dict[str, float | None]:
        """Return the commands that train missing networks, in order, with the minutes that each takes if known."""
        return {command: minutes for cell in self.missing() for command, minutes in cell.spec.network.trainings}

    def notes(self) -> list[str]:
        """Return what must be known about the networks of the runs, such as how images are prepared for them."""
        assert self.runner is not None
        known = (self.runner.settings(spec).checkpoint for spec in self.runnable().values())
        return list(dict.fromkeys(f"{network.name}: {network.note}" for network in known if network.note))

    def look_up(self, store: Store) -> None:
        """Find the records of cells that cannot run now but could when the plan in the store was written."""
        plan = store.plan(self.experiment.name)
        places: dict[tuple[str, str, str], list[SweepCell]] = {}
        for cell in self.cells:
            places.setdefault((self.experiment.tables[cell.table].title, cell.row, cell.column), []).append(cell)
        for table in plan.tables if plan else ():
            for label, column, seeds in ((row.label, *entry) for row in table.rows for entry in row.cells.items()):
                cells = places.get((table.title, label, column), [])
                known = [run.id for seed in seeds for run in seed]
                for cell, name in zip(cells, known, strict=True) if len(cells) == len(known) else ():
                    if cell.id is None and name and _is_of(store.run(name), cell.spec):
                        cell.recorded = name

    def write_plan(self, store: Store) -> None:
        """Write the layout; cells that cannot run now but have a record keep it."""
        self.look_up(store)
        store.write(self.plan(store.folder))

    def plan(self, output: Path = OUTPUT) -> Plan:
        """Return the layout of all tables, with the command that puts their records into a folder."""
        experiment = self.experiment
        words = ["domainadaptor", "run", experiment.argument]
        words += [w for name, path in experiment.networks.given.items() for w in ("--checkpoint", f"{name}={path}")]
        return Plan(
            name=experiment.name,
            title=experiment.title,
            about=experiment.about,
            file=experiment.file.name,
            command=shlex.join(words if output == OUTPUT else [*words, "--output", str(output)]),
            remarks=experiment.remarks,
            tables=tuple(self._table(number, table) for number, table in enumerate(experiment.tables)),
        )

    def _table(self, number: int, table: TableSpec) -> PlannedTable:
        runs: dict[tuple[str, str, int], list[PlannedRun]] = {}
        for cell in self.cells:
            if cell.table == number:
                run = PlannedRun(id=cell.id or cell.recorded or "", missing=cell.missing)
                runs.setdefault((cell.row, cell.column, cell.seed), []).append(run)
        columns = tuple(table.columns())
        rows = []
        for row in table.lines:
            cells = {name: tuple(tuple(runs[row.label, name, seed]) for seed in table.seeds) for name in columns}
            rows.append(PlannedRow(label=row.label, paper=row.paper, group=row.group, cells=cells))
        return PlannedTable(
            title=table.title,
            sample=table.sample(),
            show=table.view(),
            corner=table.corner,
            columns=columns,
            mean=table.mean and table.sweep is None,
            paper=table.paper,
            rows=tuple(rows),
        )


def _why(error: Exception) -> str:
    text = str(error).strip()
    return text if text and isinstance(error, AdaptationError) else f"{type(error).__name__}: {text}".removesuffix(": ")


def _is_of(record: AnyRun | None, spec: RunSpec) -> bool:
    """Return whether a record has these settings and a network trained like this, on any images and weights."""
    if record is None or record.failed or record.run.checkpoint.name != spec.network.label:
        return False
    run = record.run
    same = spec.network.may_be_trained_by(run.checkpoint.training)
    return same and spec.settings(run.data, run.checkpoint, run.validation).id == run.id


@dataclass(frozen=True)
class RunProgress:
    """Progress callbacks."""

    begun: Callable[[RunSpec, int, int], None] = lambda *_: None  # run, how many are done, of how many
    images: Callable[[int, int], None] = lambda *_: None  # images of the run that are done, of how many
    ended: Callable[[RunSpec, AnyRun], None] = lambda *_: None  # run, record


def prepared(sweep: Sweep, store: Store) -> tuple[dict[str, RunSpec], Runner]:
    """Write what records need besides themselves; return the runs that can run, by id, and the runner."""
    sweep.write_plan(store)
    specs, runner = sweep.runnable(), sweep.runner
    assert runner is not None
    for spec in specs.values():
        runner.write_provenance(spec, store)
    return specs, runner


def run_sweep(sweep: Sweep, store: Store, progress: RunProgress, only: Collection[str] | None = None) -> dict[str, str]:
    """Do every run that has no record yet. A failed run is recorded as failed, and the rest continues.

    A record made when the method had other defaults counts as none. Other processes may do the same sweep: a run that
    one of them works on is left to it. Returns the ids of failed runs -> why. `only` are the ids to look at.
    """
    specs, runner = prepared(sweep, store)
    earlier = {name: store.run(name) for name in specs}
    waiting = list(specs if only is None else only)
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
                    record = attempt(specs[name], runner, progress)
                    store.write(record)
                    progress.ended(specs[name], record)
                    failed |= {name: record.failed} if record.failed else {}
        waiting = busy
        if waiting:
            time.sleep(_POLL)
    return failed


def run_once(spec: RunSpec, runner: Runner, store: Store, images: Callable[[int, int], None]) -> AnyRun:
    """Return the record of a run from the store, or do the run; one that another process does is waited for."""
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


def attempt(spec: RunSpec, runner: Runner, progress: RunProgress) -> AnyRun:
    """Do a run and return its record, which says why if it failed."""
    try:
        return runner.run(spec, progress.images)
    except Exception as error:  # a method may be a user's own, and raise anything
        return runner.failed(spec, _why(error).splitlines()[0])
