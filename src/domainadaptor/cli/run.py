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

from domainadaptor.cli import terminal
from domainadaptor.cli.help import option
from domainadaptor.errors import BadFile, BadOption

if TYPE_CHECKING:  # these take seconds to import
    from domainadaptor.lab.experiments.run_spec import RunSpec
    from domainadaptor.lab.experiments.runner import Runner
    from domainadaptor.lab.experiments.sweep import Sweep
    from domainadaptor.lab.records.store import AnyRun, Store

_FOLDER = Path("experiments")
_NAMED = 4  # networks of an experiment that the list names
_CAPTION = (
    "missing: runs without a record whose data or network is not available; `run FILE --missing` prints the commands "
    "that train networks"
)
_FILES = "Files such as experiments/comparison.toml, or listed names."
_OUTPUT = "Results folder. Runs that have a record there are not repeated."
_CHECKPOINT = "Your own checkpoint for a network; may contain {target} and {seed}."
_MISSING = "Print the commands that train the missing networks; run nothing."
_EXPORT = "Also write records.jsonl.gz to the results folder, for version control."


def run(
    experiments: Annotated[list[Path] | None, typer.Argument(metavar="EXPERIMENT...", help=_FILES)] = None,
    listed: Annotated[bool, option(None, "List the experiments in a folder and their needs.", None, "--list")] = False,
    output: Annotated[Path, option("DIR", _OUTPUT)] = Path("results"),
    checkpoint: Annotated[list[str] | None, option("NAME=FILE", _CHECKPOINT)] = None,
    missing: Annotated[bool, option(None, _MISSING, None, "--missing")] = False,
    jobs: Annotated[int, option("N", "Processes that share the runs; best is one per core.", min=1)] = 1,
    export: Annotated[bool, option(None, _EXPORT, None, "--export")] = False,
    root: terminal.Root = None,
    device: terminal.Device = "auto",
    cache: terminal.Cache = True,
    as_json: terminal.Json = False,
) -> None:
    """Run experiments; runs that have a record are skipped.

    Repeat the command to resume after a stop.
    """
    from domainadaptor.lab.data.image_cache import cache_folder
    from domainadaptor.lab.experiments.runner import Runner

    images = cache_folder() / "images" if cache else None
    files, own = _files(experiments or [], listed), _checkpoints(checkpoint or [])
    sweeps, invalid = _read(files, own, Runner(root, images, terminal.find_device(device)))
    if invalid and not (listed and sweeps):
        raise BadFile("\n".join(invalid))
    if listed:
        _list(sweeps, output, as_json)
        terminal.show_notes(invalid)
        if invalid:
            raise typer.Exit(terminal.Exit.SOME_SKIPPED)
    elif missing:
        _print_missing(sweeps, output, root)
    else:
        with _helpers(jobs, [*(word for word in sys.argv[1:] if word != "--export"), "--jobs", "1"]):
            _run(sweeps, output, as_json, export)


def _checkpoints(pairs: list[str]) -> dict[str, str]:
    own: dict[str, str] = {}
    for text in pairs:
        name, _, own[name] = text.partition("=")
        if not own[name]:
            raise BadOption(f"--checkpoint {text!r}: expected NAME=FILE, such as mine={{target}}-{{seed}}.safetensors")
    return own


def _files(given: list[Path], listed: bool) -> list[Path]:
    """Return the experiment files: those given, by path or name, or for a list those of a folder."""
    from domainadaptor.lab.experiments.spec import NETWORKS

    files = []
    for path in given or ([_FOLDER] if listed else []):
        named = _FOLDER / f"{path}.toml"
        if listed and path.is_dir():
            files += sorted(path.glob("*.toml"))
        else:
            files.append(named if not path.exists() and named.is_file() else path)
    files = [path for path in files if path.name != NETWORKS]  # experiments/*.toml includes it
    if not files:
        hint = f"`domainadaptor run --list` lists those in {str(_FOLDER.resolve())!r}"
        raise BadFile(f"No experiment given. Pass a file such as experiments/comparison.toml; {hint}")
    return files


def _read(files: list[Path], own: dict[str, str], runner: "Runner") -> tuple[list["Sweep"], list[str]]:
    """Return the sweeps of valid files, and what is wrong with the others."""
    from domainadaptor import registry
    from domainadaptor.lab.data.image_cache import cache_folder
    from domainadaptor.lab.experiments.spec import read_experiment
    from domainadaptor.lab.experiments.sweep import Sweep

    views = registry.entries("domainadaptor.lab.reports.views")
    sweeps: list[Sweep] = []
    invalid: list[str] = []
    for path in files:
        try:
            sweeps.append(Sweep(read_experiment(path, cache_folder() / "runs", own, runner.dataset, views), runner))
        except BadFile as error:
            invalid.append(str(error))
    names = [sweep.experiment.name for sweep in sweeps]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise BadOption(f"There is more than one experiment {twice[0]!r}; run each with its own --output")
    return sweeps, invalid


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
    handler = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the others end too
    try:
        yield  # until every run is done
    finally:
        signal.signal(signal.SIGTERM, handler)
        torch.set_num_threads(before)
        for other in others:
            other.terminate()
            other.wait()


def _run(sweeps: list["Sweep"], output: Path, as_json: bool, export: bool) -> None:
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
                failed |= _run_one(sweep, store, as_json)
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


def _run_one(sweep: "Sweep", store: "Store", as_json: bool) -> dict[str, str]:
    """Do the runs of one experiment and show its tables; return what failed."""
    from domainadaptor.lab.experiments.sweep import RunProgress, run_sweep

    if recorded := sweep.recorded():
        why = "; ".join(dict.fromkeys(cell.missing for cell in recorded))
        terminal.show_notes([f"{terminal.count(len(recorded), 'run')} cannot be repeated now; records are kept: {why}"])
    if sweep.missing():
        terminal.show_notes([f"some runs cannot run: {_needs(sweep)}"])
    try:
        with terminal.progress_bar(len(sweep.runnable())) as bar:
            shown = _Display(sweep, bar)
            failed = run_sweep(sweep, store, RunProgress(shown.begun, shown.images, shown.ended))
        terminal.show_notes(shown.cautions)
    except KeyboardInterrupt:
        terminal.print_text("Interrupted; repeat the command to resume with the next run.", terminal.err)
        raise typer.Exit(terminal.Exit.INTERRUPTED) from None
    finally:
        if not as_json:
            _show_tables(sweep, store)
    return failed


def _show_tables(sweep: "Sweep", store: "Store") -> None:
    """Print the tables of an experiment that have accuracies: the mean over seeds."""
    from domainadaptor.lab.records.runs import EvaluationRecord
    from domainadaptor.lab.reports.counts import accuracy
    from domainadaptor.lab.reports.selection import TableRecords
    from domainadaptor.lab.reports.tables import MEAN, estimates, number_rows

    records = {name: run for name, run in store.runs().items() if isinstance(run, EvaluationRecord)}
    for table in sweep.plan().tables:
        rows = number_rows(TableRecords(table, "", records, "evaluation"), accuracy)
        if not (known := estimates(rows, table.columns)):
            continue  # it shows another measurement
        columns = [*table.columns, *([MEAN] if table.mean else [])]
        shown = Table(*(Column(Text(heading)) for heading in [table.corner, *columns]))  # folder names are not markup
        shown.title = Text(f"{table.title}: accuracy in percent; {table.sample}", style="table.title")
        for at, row in enumerate(rows):
            done = [name for name in columns if (at, name) in known and (name == MEAN or row.cells[name].complete)]
            shown.add_row(Text(row.label), *(f"{known[at, name].mean:.1f}" if name in done else "" for name in columns))
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
    """Return what is missing, and the commands that make it."""
    missing = sweep.missing()
    commands = "".join(f"\n  {command}" for command, why in missing.items() if command != why)
    return f"{'; '.join(dict.fromkeys(missing.values()))}{commands}"


def _print_missing(sweeps: list["Sweep"], output: Path, root: Path | None) -> None:
    """Print the commands alone on standard output, and the reasons on standard error."""
    from domainadaptor.lab.records.store import Store

    with Store(output, readonly=True) as store:
        for sweep in sweeps:
            sweep.look_up(store)
    wanted = {command: why for sweep in sweeps for command, why in sweep.missing().items()}
    terminal.show_notes(dict.fromkeys(wanted.values()))
    place = f" {shlex.join(['--root', str(root)])}" if root else ""
    for command, why in wanted.items():
        if command != why:  # otherwise no command helps
            typer.echo(command + place)


def _list(sweeps: list["Sweep"], output: Path, as_json: bool) -> None:
    from domainadaptor.lab.records.store import Store

    rows: list[dict[str, Any]] = []
    with Store(output, readonly=True) as store:
        done = {name for name, record in store.runs().items() if not record.failed}
        for sweep in sweeps:
            sweep.look_up(store)
            specs = sweep.runnable()
            absent = {repr(cell.spec): cell for cell in sweep.cells if cell.id is None}  # tables may share runs
            recorded = sum(cell.recorded is not None for cell in absent.values())
            rows.append(
                {
                    "experiment": sweep.experiment.name,
                    "title": sweep.experiment.title,
                    "data": sorted({table.dataset for table in sweep.experiment.tables}),
                    "networks": sorted({cell.spec.network.label for cell in sweep.cells}),
                    "runs": len(specs) + len(absent),
                    "done": len(specs.keys() & done) + recorded,
                    "missing": len(absent) - recorded,
                }
            )
    if as_json:
        terminal.print_json(rows)
        return
    headings = [Column(name, no_wrap=True, justify="right") for name in ("runs", "done", "missing")]
    table = Table("experiment, and what it needs", *headings, caption=_CAPTION)
    for row in rows:
        some = ", ".join(row["networks"][:_NAMED]) + (" …" if len(row["networks"]) > _NAMED else "")
        needs = f"\n{row['title']}\n{', '.join(row['data'])}: {some}"
        counts = (str(row[name]) for name in ("runs", "done", "missing"))
        table.add_row(Text.assemble((row["experiment"], "bold"), needs), *counts)
    terminal.out.print(table)
