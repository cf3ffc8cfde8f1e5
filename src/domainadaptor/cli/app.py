"""The program `domainadaptor`."""

import os
import sys
from io import TextIOWrapper
from typing import Annotated

import typer

import domainadaptor
from domainadaptor.cli import (
    algorithms,
    bench,
    check,
    data,
    demo,
    evaluate,
    methods,
    predict,
    protocols,
    report,
    run,
    stress,
    train,
)
from domainadaptor.cli.terminal import Exit, err
from domainadaptor.errors import AdaptationError

app = typer.Typer(
    name="domainadaptor",
    help="Make a trained image classifier work on data it was never trained for, at test time.",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong command line, 3 done but some images or records were skipped, "
    "4 wrapping a network changed its answers, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("demo")(demo.demo)
app.command("methods")(methods.methods)
app.command("check")(check.check)
app.command("predict")(predict.predict)
app.command("train")(train.train)
app.command("algorithms")(algorithms.algorithms)
app.command("evaluate")(evaluate.evaluate)
app.command("protocols")(protocols.protocols)
app.command("run")(run.run)
app.command("stress")(stress.stress)
app.command("bench")(bench.bench)
app.add_typer(data.app)
app.command("report")(report.report)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"domainadaptor {domainadaptor.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Make a trained image classifier work on data it was never trained for, at test time."""


def main() -> None:
    """Runs the program; an expected error is one message and an exit code, not a traceback."""
    # Looking for weights on a hub would hang without a network, and nothing here is ever downloaded.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a file name must not end a run on a plain terminal
    try:
        app()
    except AdaptationError as error:
        err.print("error:", style="bold red", end=" ")
        err.print(str(error), markup=False, highlight=False, soft_wrap=True)
        sys.exit(Exit.FAILED)
