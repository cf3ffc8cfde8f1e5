"""`domainadaptor run`: all cells of an experiment file, each once, whatever happens."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Column, Table
from rich.text import Text

from domainadaptor.cli.run_display import Tables, display
from domainadaptor.cli.terminal import (
    Device,
    Exit,
    Json,
    Root,
    err,
    find_device,
    out,
    print_json,
    show_damaged,
    show_notes,
)
from domainadaptor.errors import BadFile, BadOption

if TYPE_CHECKING:  # torchvision and timm take seconds to import
    from domainadaptor.lab.experiments.store import Store
    from domainadaptor.lab.experiments.sweep import Grid

_FOLDER = Path("experiments")


def run(
    experiments: Annotated[
        list[Path] | None, typer.Argument(metavar="EXPERIMENT...", help="Files, as experiments/comparison.toml.")
    ] = None,
    listed: Annotated[
        bool, typer.Option("--list", help="Show the experiments in a folder, and what they need.")
    ] = False,
    output: Annotated[Path, typer.Option(help="The folder for records; what is there is not run again.")] = Path(
        "results"
    ),
    checkpoint: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            help="Your own checkpoint for a network, with {target} and {seed} where there are many.",
        ),
    ] = None,
    missing: Annotated[
        bool, typer.Option("--missing", help="Print the commands that make the networks that are missing; run nothing.")
    ] = False,
    jobs: Annotated[
        int,
        typer.Option(min=1, help="Processes that share the cells and the cores; best is one a core, memory allowing."),
    ] = 1,
    root: Root = None,
    device: Device = "auto",
    cache: Annotated[bool, typer.Option(help="Keep decoded images on disk.")] = True,
    as_json: Json = False,
) -> None:
    """Run experiments: every cell of their tables that has no record yet. The same command goes on after a stop."""
    from domainadaptor.lab.data.image_cache import cache_folder
    from domainadaptor.lab.experiments.runner import Workshop
    from domainadaptor.lab.experiments.spec import NETWORKS, read_experiment
    from domainadaptor.lab.experiments.sweep import Grid

    files = list(experiments or ())
    if listed:
        folders = [path for path in files if path.is_dir()] or [_FOLDER]
        files = [path for path in files if not path.is_dir()] or [
            path for folder in folders for path in sorted(folder.glob("*.toml"))
        ]
    files = [path for path in files if path.name != NETWORKS]  # it lies beside them, so experiments/*.toml has it
    if not files:
        raise BadFile(
            "which experiment? give a file, as experiments/comparison.toml; `domainadaptor run --list` shows them"
        )
    given = dict(_pair(text) for text in checkpoint or ())
    workshop = Workshop(root, cache_folder() / "images" if cache else None, find_device(device))
    grids: list[Grid] = []
    refused: list[str] = []
    for path in files:
        try:
            grids.append(Grid(read_experiment(path, cache_folder() / "runs", given, workshop.dataset), workshop))
        except BadFile as error:
            refused.append(str(error))
    if refused and not (listed and grids):
        raise BadFile("\n".join(refused))
    names = [grid.experiment.name for grid in grids]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise BadOption(
            f"there is more than one experiment {twice[0]!r}: run them one by one, each with its own --output"
        )
    if listed:
        _list(grids, output, as_json)
        show_notes(refused)
        if refused:
            raise typer.Exit(Exit.SOME_SKIPPED)
    elif missing:
        for grid in grids:
            _look_up(grid, output)
        wanted = {command: why for grid in grids for command, why in grid.missing().items()}
        show_notes(dict.fromkeys(wanted.values()))
        place = f" {shlex.join(['--root', str(root)])}" if root else ""
        for command, why in wanted.items():
            if command != why:  # a reason alone is no command
                typer.echo(command + place)
    else:
        words = [
            "run",
            *map(str, files),
            "--output",
            str(output),
            "--device",
            device,
            "--cache" if cache else "--no-cache",
        ]
        words += [word for text in checkpoint or () for word in ("--checkpoint", text)]
        words += ["--root", str(root)] if root else []
        with _helpers(jobs, words):
            _run(grids, output, as_json)


@contextmanager
def _helpers(jobs: int, words: list[str]) -> Iterator[None]:
    """Other processes that run the same command on their share of the cores; records keep them apart."""
    if jobs == 1:
        yield
        return
    import torch

    before = torch.get_num_threads()
    threads = max(1, before // jobs)
    torch.set_num_threads(threads)
    said = subprocess.DEVNULL if err.is_terminal else None  # lines would break the bar
    others = [
        subprocess.Popen(
            [sys.executable, "-m", "domainadaptor", *words],
            env={**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)},
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
        for _ in range(jobs - 1)
    ]
    before_that = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # others end too
    try:
        yield  # until every cell is done, whoever did it
    finally:
        signal.signal(signal.SIGTERM, before_that)
        torch.set_num_threads(before)
        for other in others:
            other.terminate()
            other.wait()


def _run(grids: list["Grid"], output: Path, as_json: bool) -> None:
    from domainadaptor.lab.experiments.store import Store
    from domainadaptor.lab.experiments.sweep import Watcher, run_all

    store = Store(output, show_damaged)
    failed: dict[str, str] = {}
    idle = []
    for grid in grids:
        cells = grid.runnable()
        grid.look_up(store)
        if not cells and grid.missing():
            grid.write_plan(store)  # a report says what is missing
            idle.append(f"{grid.experiment.name} cannot run: {_needs(grid)}")
            continue
        if standing := grid.standing():
            why = "; ".join(dict.fromkeys(place.missing for place in standing))
            show_notes([f"{len(standing)} cells cannot run now and stand as they were recorded: {why}"])
        if grid.missing():
            err.print(f"note: some cells cannot run: {_needs(grid)}", markup=False, highlight=False, soft_wrap=True)
        tables = Tables(grid, store)
        try:
            with display(grid, tables, len(cells)) as show:
                failed |= run_all(grid, store, Watcher(show.begun, show.images, show.ended))
        except KeyboardInterrupt:
            if not as_json:
                tables.show()
            err.print("interrupted: the same command goes on with the next cell", highlight=False)
            raise typer.Exit(Exit.INTERRUPTED) from None
        show_notes(show.cautions)
        if not as_json:
            tables.show()
    for name, why in failed.items():
        err.print(f"failed {name}: {why}", markup=False, highlight=False, soft_wrap=True)
    if len(idle) == len(grids):
        raise BadFile("\n".join(idle))
    show_notes(idle)
    if as_json:
        print_json({grid.experiment.name: grid.plan(output) for grid in grids})
    else:
        said = f"Records in {output}; `domainadaptor report {shlex.quote(str(output))}` makes pages of them."
        out.print(said, markup=False, highlight=False, soft_wrap=True)
    if failed:
        raise typer.Exit(Exit.FAILED)
    if any(grid.missing() for grid in grids):
        raise typer.Exit(Exit.SOME_SKIPPED)


def _needs(grid: "Grid") -> str:
    """What is missing, and the commands that make it."""
    missing = grid.missing()
    reasons = "; ".join(dict.fromkeys(missing.values()))
    commands = "".join(f"\n  {command}" for command, why in missing.items() if command != why)
    return f"{reasons}{commands}"


_NAMED = 4  # networks of an experiment that its line in the list names


def _list(grids: list["Grid"], output: Path, as_json: bool) -> None:
    from domainadaptor.lab.experiments.estimate import minutes_for

    rows = []
    for grid in grids:
        store = _look_up(grid, output)
        cells = grid.runnable()
        left = {name: cell for name, cell in cells.items() if store is None or store.peek(name) is None}
        absent = {repr(place.cell): place for place in grid.places if place.id is None}  # tables may share cells
        missing = {key: place.cell for key, place in absent.items() if place.recorded is None}
        rows.append(
            {
                "experiment": grid.experiment.name,
                "title": grid.experiment.title,
                "data": sorted({table.dataset for table in grid.experiment.tables}),
                "networks": sorted({place.cell.network.label for place in grid.places}),
                "cells": len(cells) + len(absent),
                "done": len(cells) - len(left) + len(absent) - len(missing),
                "missing": len(missing),
                "minutes": minutes_for([*left.values(), *missing.values()], grid),
            }
        )
    if as_json:
        print_json(rows)
        return
    counted = ("cells", "done", "missing", "minutes")
    table = Table(
        "experiment, and what it needs",
        *(Column(name, no_wrap=True, justify="right") for name in counted),
        caption="missing: cells without a record whose data or network is not here (`run FILE --missing` says what "
        "makes them); minutes: a guess for what is not done, on two cores",
    )
    for row in rows:
        texts = ["not known" if row[name] is None else f"{row[name]:.0f}" for name in counted]
        table.add_row(Text.assemble((str(row["experiment"]), "bold"), "\n", _needed(row)), *texts)
    out.print(table)


def _look_up(grid: "Grid", output: Path) -> "Store | None":
    """The records that there are; looking makes no folders."""
    from domainadaptor.lab.experiments.store import Store

    if not (output / "records").is_dir():
        return None
    store = Store(output)
    grid.look_up(store)
    return store


def _needed(row: dict[str, Any]) -> str:
    """The data and the networks of a row, the latter only begun where they are many."""
    networks = row["networks"]
    more = [f"and {len(networks) - _NAMED} more"] if len(networks) > _NAMED else []
    return f"{', '.join(row['data'])}: {', '.join([*networks[:_NAMED], *more])}"


def _pair(text: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not equals or not path:
        raise BadOption(
            f"--checkpoint {text!r}: expected NAME=FILE, as in testbed=mine/{{target}}-{{seed}}.safetensors"
        )
    return name, path
