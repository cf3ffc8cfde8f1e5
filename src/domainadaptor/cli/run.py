"""`domainadaptor run`: every run of an experiment file, each once."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Column, Table
from rich.text import Text

from domainadaptor.cli import options, terminal
from domainadaptor.cli.help import option
from domainadaptor.errors import BadFile, BadOption

if TYPE_CHECKING:  # these take seconds to import
    from domainadaptor.lab.cluster.start import Workers
    from domainadaptor.lab.experiments.run_spec import RunSpec
    from domainadaptor.lab.experiments.runner import Runner
    from domainadaptor.lab.experiments.spec import Experiment
    from domainadaptor.lab.experiments.sweep import Sweep
    from domainadaptor.lab.records.store import AnyRun, Store

EXAMPLES = r"""
domainadaptor run --list
domainadaptor run table-5 --train --root data --jobs 2
"""

_FILES = "Names of `run --list`, tables of the paper such as table-3, or files of your own."
_OUTPUT = "Results folder. Runs that have a record there are not repeated."
_CHECKPOINT = "Your own checkpoint for a network; may contain {target} and {seed}."
_EXPORT = "Also write records.jsonl.gz to the results folder, for version control."
_TIMES = "time: of all runs, as measured for the published results, without training; yours may differ"


def run(
    experiments: Annotated[list[str] | None, typer.Argument(metavar="EXPERIMENT...", help=_FILES)] = None,
    listed: Annotated[bool, option(None, "List experiments; run nothing.", None, "--list")] = False,
    train: Annotated[bool, option(None, "Train missing networks first.", None, "--train")] = False,
    output: Annotated[Path, option("DIR", _OUTPUT)] = Path("results"),
    checkpoint: Annotated[list[str] | None, option("NAME=FILE", _CHECKPOINT)] = None,
    jobs: Annotated[int, option("N", "Processes that share the runs; best is one per core.", min=1)] = 1,
    export: Annotated[bool, option(None, _EXPORT, None, "--export")] = False,
    root: terminal.Root = None,
    device: terminal.Device = "auto",
    cache: terminal.Cache = True,
    engine: options.Engine = "process",
    address: options.Address = None,
    workers: options.WorkerCount = None,
    threads: options.Threads = None,
    gpus: options.Gpus = None,
    as_json: terminal.Json = False,
) -> None:
    """Run experiments: the paper's tables and figures, or your own.

    Runs that have a record are skipped. Repeat the command to resume after a stop.
    """
    from domainadaptor.lab.data.image_cache import cache_folder
    from domainadaptor.lab.experiments.runner import Runner
    from domainadaptor.lab.experiments.spec import experiment_files, find_experiment
    from domainadaptor.lab.experiments.sweep import Sweep

    if not experiments and not listed:
        raise BadOption("No experiment given. Pass a name or a file; `domainadaptor run --list` lists the names")
    files = [find_experiment(name) for name in experiments or []] or experiment_files()
    given = _checkpoints(checkpoint or [])
    if listed:
        _list([Sweep(experiment) for experiment in _read(files, given)], output, as_json)
        return
    cluster = options.find_workers(engine, address, workers, threads, gpus)
    if cluster is not None and jobs > 1:
        raise BadOption("--jobs is for --engine process; pass --workers with --engine ray")
    runner = Runner(root, cache_folder() / "images" if cache else None, terminal.find_device(device))
    sweeps = [Sweep(experiment, runner) for experiment in _read(files, given, runner)]
    if train and (trainings := _trainings(sweeps, output)):
        more = [*(["--root", str(root)] if root else []), "--device", device, *([] if cache else ["--no-cache"])]
        _train(trainings, more)
        sweeps = [Sweep(sweep.experiment, runner) for sweep in sweeps]
    with _helpers(jobs, [*(word for word in sys.argv[1:] if word not in ("--export", "--train")), "--jobs", "1"]):
        _run(sweeps, output, cluster, as_json, export)


def _checkpoints(pairs: list[str]) -> dict[str, str]:
    own: dict[str, str] = {}
    for text in pairs:
        name, _, own[name] = text.partition("=")
        if not own[name]:
            raise BadOption(f"--checkpoint {text!r}: expected NAME=FILE, such as mine={{target}}-{{seed}}.safetensors")
    return own


def _read(files: list[Path], own: dict[str, str], runner: "Runner | None" = None) -> list["Experiment"]:
    """Return the experiments of all files, or report what is wrong with any of them."""
    from domainadaptor import registry
    from domainadaptor.lab.data.image_cache import cache_folder
    from domainadaptor.lab.experiments.spec import read_experiment

    views = registry.entries("domainadaptor.lab.reports.views")
    found, invalid = [], []
    for path in files:
        try:
            found.append(read_experiment(path, cache_folder() / "runs", own, runner.dataset if runner else None, views))
        except BadFile as error:
            invalid.append(str(error))
    if invalid:
        raise BadFile("\n".join(invalid))
    names = [experiment.name for experiment in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise BadOption(f"There is more than one experiment {twice[0]!r}; run each with its own --output")
    return found


def _trainings(sweeps: list["Sweep"], output: Path) -> dict[str, float | None]:
    """Return the commands that train the networks of runs without a record, with the minutes of each if known."""
    from domainadaptor.lab.records.store import Store

    with Store(output, readonly=True) as store:
        for sweep in sweeps:
            sweep.look_up(store)
    return {command: minutes for sweep in sweeps for command, minutes in sweep.trainings().items()}


def _train(trainings: dict[str, float | None], more: list[str]) -> None:
    """Train networks one after the other; those that are complete or were begun earlier are not repeated."""
    terminal.show_notes([_estimate(trainings)])
    for at, command in enumerate(trainings, 1):
        terminal.print_text(f"[{at}/{len(trainings)}] {command}", terminal.err)
        words = [sys.executable, "-m", "domainadaptor", *shlex.split(command)[1:], *more]
        with _exit_on_sigterm():
            status = subprocess.run(words, stdout=subprocess.DEVNULL, check=False).returncode  # it reports on stderr
        if status not in (0, terminal.Exit.SOME_SKIPPED):
            raise typer.Exit(status)


def _estimate(trainings: dict[str, float | None]) -> str:
    """Say how many networks must be trained, and how long that takes, as far as it was ever measured."""
    known = [minutes for minutes in trainings.values() if minutes is not None]
    text = f"{terminal.count(len(trainings), 'network')} must be trained first"
    if known:
        some = "" if len(known) == len(trainings) else f" for {len(known)} of them"
        text += f", about {_duration(sum(known))}{some} (as measured for the published results; yours may differ)"
    if len(known) < len(trainings):
        text += "; for how long is not known: an epoch of the first will show it"
    return text


def _duration(minutes: float) -> str:
    """Return a time in words: minutes, hours or days."""
    for unit, length in (("day", 24 * 60), ("hour", 60)):
        if minutes >= 2 * length:
            return f"{minutes / length:.1f} {unit}s"
    return terminal.count(max(1, round(minutes)), "minute")


@contextmanager
def _helpers(jobs: int, words: list[str]) -> Iterator[None]:
    """Start more processes with the same command on their share of the cores; claims keep them apart."""
    if jobs == 1:
        yield
        return
    import torch

    before = torch.get_num_threads()
    threads = max(1, before // jobs)
    torch.set_num_threads(threads)
    others = [
        subprocess.Popen(
            [sys.executable, "-m", "domainadaptor", *words],
            env={**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL if terminal.err.is_terminal else None,  # lines would break the progress bar
        )
        for _ in range(jobs - 1)
    ]
    try:
        with _exit_on_sigterm():
            yield  # until every run is done
    finally:
        torch.set_num_threads(before)
        for other in others:
            other.terminate()
            other.wait()


@contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """End as after an error when this process is told to end, so that processes it started end too."""
    handler = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)


def _run(sweeps: list["Sweep"], output: Path, cluster: "Workers | None", as_json: bool, export: bool) -> None:
    from domainadaptor.lab.records.store import Store

    failed: dict[str, str] = {}
    idle = []
    with Store(output, lambda text: terminal.show_notes([text])) as store:
        for sweep in sweeps:
            sweep.look_up(store)
            if not sweep.runnable() and sweep.missing():
                sweep.write_plan(store)  # the report lists what is missing
                idle.append(f"{sweep.experiment.name} cannot run: {_needs(sweep)}")
            else:
                failed |= _run_one(sweep, store, cluster, as_json)
        if export:
            store.export()
    for name, why in failed.items():
        terminal.print_text(f"failed {name}: {why}", terminal.err)
    if len(idle) == len(sweeps):
        raise BadFile("\n".join(idle))
    terminal.show_notes(idle)
    if as_json:
        terminal.print_json({sweep.experiment.name: sweep.plan(output).model_dump(mode="json") for sweep in sweeps})
    else:
        terminal.print_text(
            f"Records are in {output}; `domainadaptor report {shlex.quote(str(output))}` makes tables of them."
        )
    if failed:
        raise typer.Exit(terminal.Exit.FAILED)
    if any(sweep.missing() for sweep in sweeps):
        raise typer.Exit(terminal.Exit.SOME_SKIPPED)


def _run_one(sweep: "Sweep", store: "Store", cluster: "Workers | None", as_json: bool) -> dict[str, str]:
    """Do the runs of one experiment and show its tables; return what failed."""
    from domainadaptor.lab.experiments.sweep import RunProgress, run_sweep

    if recorded := [cell for cell in sweep.cells if cell.recorded]:
        why = "; ".join(dict.fromkeys(cell.missing for cell in recorded))
        terminal.show_notes([f"{terminal.count(len(recorded), 'run')} cannot be repeated now; records are kept: {why}"])
    if sweep.missing():
        terminal.show_notes([f"some runs cannot run: {_needs(sweep)}"])
    terminal.show_notes(sweep.notes())
    try:
        with terminal.progress_bar(len(sweep.runnable())) as bar:
            shown = _Display(sweep, bar)
            progress = RunProgress(shown.begun, shown.images, shown.ended)
            if cluster is None:
                failed = run_sweep(sweep, store, progress)
            else:
                from domainadaptor.lab.cluster.tasks import run_sweep_on_cluster

                failed = run_sweep_on_cluster(sweep, store, progress, cluster)
        terminal.show_notes(shown.cautions)
    except KeyboardInterrupt:
        terminal.print_text("Interrupted; repeat the command to resume with the next run.", terminal.err)
        raise typer.Exit(terminal.Exit.INTERRUPTED) from None
    finally:
        if not as_json:
            _show_tables(sweep, store)
    return failed


def _show_tables(sweep: "Sweep", store: "Store") -> None:
    """Print the tables of an experiment as the report has them, without the paper's numbers."""
    from domainadaptor.lab.reports.sections import chapters

    plan = sweep.plan()
    tables = tuple(table.model_copy(update={"paper": None}) for table in plan.tables)
    (chapter,) = chapters([plan.model_copy(update={"tables": tables})], store.runs())
    for section in chapter.sections:
        for printed in section.view.tables:
            title = f"{section.title}; {section.sample}"
            shown = Table(*(Column(Text(name)) for name in (printed.corner, *printed.columns)), title=Text(title))
            for line in printed.lines:
                shown.add_row(Text(line.label), *map(Text, line.cells))
            terminal.out.print(shown)


class _Display:
    """A progress bar on a terminal, one line per run elsewhere."""

    def __init__(self, sweep: "Sweep", bar: terminal.Bar) -> None:
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
        self._bar.show(f"{self._text}: image {done:,} of {total:,}")

    def ended(self, spec: "RunSpec", record: "AnyRun") -> None:
        """Print the result if there is no bar to look at, or if it failed."""
        from domainadaptor.lab.reports.counts import accuracy

        self.cautions |= dict.fromkeys(record.cautions)
        self._ended += 1
        left = (time.perf_counter() - self._started) / self._ended * (self._total - self._done) / 60
        outcome = f"failed: {record.failed}" if record.failed else "measured"
        if record.kind == "evaluation" and not record.failed:
            outcome = f"{accuracy([record], 'source'):.1f} -> {accuracy([record]):.1f} %, {record.took:.0f} s"
        if not terminal.err.is_terminal or record.failed:
            terminal.print_text(
                f"[{self._done}/{self._total}] {self._text}: {outcome}; about {left:.0f} min left", terminal.err
            )


def _needs(sweep: "Sweep") -> str:
    """Return why runs cannot run, and what helps."""
    trainings = sweep.trainings()
    reasons = dict.fromkeys(cell.missing for cell in sweep.missing() if not cell.spec.network.trainings)
    parts = [*([_estimate(trainings)] if trainings else []), *reasons]
    commands = "".join(f"\n  {command}" for command in trainings)
    return f"{'; '.join(parts)}" + (f". Add --train, or train them yourself:{commands}" if trainings else "")


def _list(sweeps: list["Sweep"], output: Path, as_json: bool) -> None:
    from domainadaptor.lab.records.store import Store

    rows: list[dict[str, Any]] = []
    with Store(output, readonly=True) as store:
        for sweep in sweeps:
            sweep.look_up(store)
            runs = {repr(cell.spec): cell.recorded is not None for cell in sweep.cells}  # tables may share runs
            experiment = sweep.experiment
            rows.append(
                {
                    "experiment": experiment.name,
                    "paper": experiment.paper,
                    "title": experiment.title,
                    "data": sorted({table.dataset for table in experiment.tables}),
                    "networks": sorted({cell.spec.network.label for cell in sweep.cells}),
                    "runs": len(runs),
                    "done": sum(runs.values()),
                    "minutes": experiment.minutes,
                }
            )
    rows.sort(key=lambda row: _order(row["paper"]))
    if as_json:
        terminal.print_json(rows)
        return
    numbers = [Column(name, no_wrap=True, justify="right") for name in ("runs", "done", "time")]
    table = Table(Column("paper", no_wrap=True), Column("experiment", overflow="fold"), *numbers, caption=_TIMES)
    for row in rows:
        title = "\n" + row["title"].removesuffix(f" ({row['paper']})")
        time = "" if row["minutes"] is None else _duration(row["minutes"])
        name = Text.assemble((row["experiment"], "bold"), title)
        table.add_row(row["paper"], name, str(row["runs"]), str(row["done"]), time)
    terminal.out.print(table)


def _order(paper: str) -> tuple[bool, str, int, str]:
    """Sort tables, then figures, then what is not in the paper."""
    kind, _, number = paper.partition(" ")
    digits = "".join(filter(str.isdigit, number))
    return kind != "Table", kind or "~", int(digits or 0), number
