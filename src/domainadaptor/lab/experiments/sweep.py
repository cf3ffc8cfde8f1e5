"""All cells of an experiment: which are done, which can run, and running them one by one."""

import json
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from domainadaptor.errors import AdaptationError
from domainadaptor.lab.experiments.networks import Located
from domainadaptor.lab.experiments.run_spec import Cell, id_of
from domainadaptor.lab.experiments.runner import Workshop, defaults, environment
from domainadaptor.lab.experiments.store import FORMAT, Store
from domainadaptor.lab.experiments.table import Experiment, Row, TableSpec, cells

OUTPUT = Path("results")  # of `run`, unless it is told another
_AGAIN = 2.0  # seconds until a cell that another process works on is looked at again


@dataclass(frozen=True)
class Place:
    """A cell, and where its number stands."""

    cell: Cell
    id: str | None  # None where data or network are not there
    missing: str  # why it cannot run
    table: int
    row: str
    column: str
    seed: int
    recorded: str | None = None  # the id of its record, where it could run once


@dataclass
class Grid:
    """The cells of an experiment, laid out."""

    experiment: Experiment
    workshop: Workshop
    places: list[Place] = field(default_factory=list)
    _located: dict[tuple[str, str | None, int], Located] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for number, table in enumerate(self.experiment.tables):
            for row in table.rows:
                for column in table.columns():
                    for seed in table.seeds:
                        self.places += self._place(number, table, row, column, seed)

    def runnable(self) -> dict[str, Cell]:
        """Cells by id, each once; those of one network together, so that it is opened once."""
        found = {place.id: place.cell for place in self.places if place.id is not None}
        return dict(sorted(found.items(), key=lambda entry: entry[1].network.argument))

    def missing(self) -> dict[str, str]:
        """Why cells cannot run, each reason by the command that would help, or by itself where there is none."""
        wanted = [place for place in self.places if place.id is None and place.recorded is None]
        return {place.cell.network.command or place.missing: place.missing for place in wanted}

    def plan(self, output: Path = OUTPUT) -> dict[str, Any]:
        """The layout of all tables, for reports, with the commands that put their records into a folder."""
        experiment = self.experiment
        return {
            "kind": "plan",
            "format": FORMAT,
            "name": experiment.name,
            "title": experiment.title,
            "about": experiment.about,
            "file": experiment.file.name,
            "command": self._command(output),
            "remarks": list(experiment.remarks),
            "tables": [self._table(number, table, output) for number, table in enumerate(experiment.tables)],
        }

    def standing(self) -> list[Place]:
        """Cells that cannot run now and have a record from when they could."""
        return [place for place in self.places if place.recorded is not None]

    def look_up(self, store: Store) -> None:
        """Finds the records of cells that cannot run now but could when the plan in the store was written."""
        earlier = _ids(store.read_plan(self.experiment.name))
        places: dict[tuple[str, str, str], list[int]] = {}
        for at, place in enumerate(self.places):
            key = (self.experiment.tables[place.table].title, place.row, place.column)
            places.setdefault(key, []).append(at)
        for key, own in places.items():
            known = earlier.get(key, [])
            for at, name in zip(own, known if len(known) == len(own) else [], strict=False):
                place = self.places[at]
                if place.id is None and name is not None and _is_of(store.peek(name), place.cell):
                    self.places[at] = replace(place, recorded=name)

    def write_plan(self, store: Store) -> None:
        """Writes the layout; cells that cannot run now but have a record keep it.

        Raises:
            BadFile: It cannot be written there.
        """
        self.look_up(store)
        store.write_plan(self.plan(store.folder))

    def _place(self, number: int, table: TableSpec, row: Row, column: str, seed: int) -> Iterator[Place]:
        for cell in cells(table, row, column, seed, self._locate):
            name, missing = None, cell.network.missing
            if not missing:
                try:
                    name = id_of(self.workshop.run_of(cell))
                except AdaptationError as error:
                    missing = str(error)
                except Exception as error:  # a data set may be anybody's
                    missing = f"{type(error).__name__}: {error}"
            yield Place(cell, name, missing, number, row.label, column, seed)

    def _locate(self, network: str, target: str | None, seed: int) -> Located:
        key = (network, target, seed)
        if key not in self._located:
            self._located[key] = self.experiment.networks.locate(network, target, seed, self.workshop.dataset)
        return self._located[key]

    def _command(self, output: Path) -> str:
        words = ["domainadaptor", "run", self.experiment.file.as_posix()]
        words += [
            word for name, path in self.experiment.networks.given.items() for word in ("--checkpoint", f"{name}={path}")
        ]
        return shlex.join(words if output == OUTPUT else [*words, "--output", str(output)])

    def _table(self, number: int, table: TableSpec, output: Path) -> dict[str, Any]:
        own = [place for place in self.places if place.table == number]
        averaged = table.sweep is not None

        def of(row: Row, value: Callable[[Place], Any]) -> dict[str, list[Any]]:
            found: dict[str, list[Any]] = {}
            for column in table.columns():
                by_seed: dict[int, list[Any]] = {}
                for place in own:
                    if (place.row, place.column) == (row.label, column):
                        by_seed.setdefault(place.seed, []).append(value(place))
                found[column] = [values if averaged else values[0] for values in by_seed.values()]
            return found

        return {
            "title": table.title,
            "sample": table.sample(),
            "show": table.show,
            "corner": table.corner,
            "columns": table.columns(),
            "mean": table.mean and not averaged,
            "paper": table.paper,
            "rows": [
                {
                    "label": row.label,
                    "paper": row.paper,
                    "group": row.group,
                    "cells": of(row, lambda place: place.id or place.recorded),
                    "commands": of(row, lambda place: _filling(place, output)),
                    "missing": of(row, lambda place: place.missing),
                }
                for row in table.rows
            ],
        }


def _ids(plan: Mapping[str, Any]) -> dict[tuple[str, str, str], list[str | None]]:
    """The ids of a plan's records by table, row and column, those of all seeds in a row."""
    found = {}
    try:
        for table in plan.get("tables", ()):
            for row in table["rows"]:
                for column, seeds in row["cells"].items():
                    key = (table["title"], row["label"], column)
                    found[key] = [name for seed in seeds for name in (seed if isinstance(seed, list) else [seed])]
    except (AttributeError, LookupError, TypeError):  # a damaged plan is written anew
        return {}
    return found


def _is_of(record: dict[str, Any] | None, cell: Cell) -> bool:
    """Whether a record is of these settings and of a network trained like this, on whatever images and weights."""
    if record is None or record["run"]["checkpoint"].get("name") != cell.network.label:
        return False
    run = record["run"]
    if not cell.network.is_trained_by(run["checkpoint"].get("command", "")):
        return False
    return bool(cell.run(run["data"], run["checkpoint"], run.get("validation", ())) == run)


def _filling(place: Place, output: Path) -> str:
    """The command that makes the record of a cell, or else the network that it wants."""
    command = place.cell.command()
    return command if place.cell.network.missing else f"{command} {shlex.join(['--output', str(output)])}"


@dataclass(frozen=True)
class Watcher:
    """Whom a run tells how it goes."""

    begun: Callable[[Cell, int, int], None]  # cell, how many are done, of how many
    images: Callable[[int, int], None]  # how many images of the cell are done, of how many
    ended: Callable[[Cell, dict[str, Any]], None]  # cell, record


def run_all(grid: Grid, store: Store, watcher: Watcher) -> dict[str, str]:
    """Runs every cell that has no record yet; a cell that fails is recorded as such, and the rest goes on.

    A record from when the method had other defaults counts as none.
    Other processes may run the same grid: a cell that one of them works on is left to it.

    Returns:
        The ids of cells that failed -> why.

    Raises:
        BadFile: A record cannot be written.
    """
    grid.write_plan(store)
    cells = grid.runnable()
    for cell in cells.values():
        grid.workshop.write_manifest(cell, store)
    earlier = {name: store.read(name) for name in cells}
    waiting = list(cells)
    failed: dict[str, str] = {}
    while waiting:
        busy = []
        for name in waiting:
            with store.claim(name) as own:
                if not own:
                    busy.append(name)
                    continue
                there = store.read(name)
                if _stands(there, cells[name]):
                    continue
                # Another process has just tried it in vain.
                if there is not None and "failed" in there and there != earlier[name]:
                    failed[name] = there["failed"]
                    continue
                watcher.begun(cells[name], len(cells) - len(waiting) + waiting.index(name), len(cells))
                record = _attempt(cells[name], name, grid.workshop, watcher)
                store.write(record)
                watcher.ended(cells[name], record)
                if "failed" in record:
                    failed[name] = record["failed"]
        waiting = busy
        if waiting:
            time.sleep(_AGAIN)
    return failed


def kept(store: Store, name: str, cell: Cell, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The record of a cell, measured if there is none; while another process measures it, that one is waited for.

    Raises:
        BadFile: The record cannot be written.
    """
    while True:
        with store.claim(name) as own:
            if own:
                record = store.read(name)
                if record is None or not _stands(record, cell):
                    record = measure()
                    store.write(record)
                return record
        time.sleep(_AGAIN)


def _stands(record: dict[str, Any] | None, cell: Cell) -> bool:
    """Whether there is a result, and no option that the cell leaves to its method had another default."""
    if record is None or "failed" in record:
        return False
    now = defaults(cell)  # an option that is new since then does not count
    return all(name not in now or now[name] == value for name, value in record.get("defaults", {}).items())


def _attempt(cell: Cell, name: str, workshop: Workshop, watcher: Watcher) -> dict[str, Any]:
    try:
        record = workshop.measure(cell, watcher.images)
        json.dumps(record, allow_nan=False)  # what cannot be written is no result
        return record
    except Exception as error:  # a method may be anybody's, and raise anything
        reason = str(error).strip().splitlines() or [type(error).__name__]
        return {
            "kind": "measurement" if cell.measure else "evaluation",
            "format": FORMAT,
            "id": name,
            "run": workshop.run_of(cell),
            "command": cell.command(),
            "failed": f"{type(error).__name__}: {reason[0]}" if not isinstance(error, AdaptationError) else reason[0],
            "environment": environment(workshop.device),
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
