"""What all commands share: options, output, progress and exit codes."""

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import torch
import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from domainadaptor.errors import BadOption

if TYPE_CHECKING:  # training takes seconds to import
    from domainadaptor.lab.training.fit import Moment

out = Console()
err = Console(stderr=True)


class Exit(IntEnum):
    """Exit codes; 0 is success, and 2 is a wrong command line."""

    FAILED = 1
    SOME_SKIPPED = 3
    NOT_NEUTRAL = 4
    INTERRUPTED = 130


Network = Annotated[
    str,
    typer.Argument(
        help="A torchvision, timm or CIFAR name, as resnet50 or timm:mobilenetv3_small_100; or a checkpoint, "
        "which knows its network, weights, classes and preprocessing."
    ),
]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, mps …; auto takes a GPU if there is one.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Images that are adapted to and predicted at once.")]
Seed = Annotated[int, typer.Option(min=0, help="Of everything random; the same seed gives the same numbers.")]
Root = Annotated[
    Path | None, typer.Option(help="The folder that holds the data; the variable DOMAINADAPTOR_DATA otherwise.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text, for programs.")]


def find_device(name: str) -> torch.device:
    """The device of that name.

    Raises:
        BadOption: There is none.
    """
    if name == "auto":
        return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except Exception as error:
        raise BadOption(f"--device {name!r} is not there; use auto or cpu ({str(error).splitlines()[0]})") from error
    return device


def show_notes(notes: Iterable[str]) -> None:
    """Prints what must be said of a result, on standard error."""
    for note in notes:
        err.print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)


def show_damaged(name: str, why: str) -> None:
    """Prints that a record could not be used."""
    show_notes([f"the record {name} was damaged and is made again: {why}"])


def print_json(value: object) -> None:
    """Prints JSON alone on standard output."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


@contextmanager
def progress_bar(total: int) -> Iterator["Bar"]:
    """A progress bar on a terminal's standard error, nothing elsewhere."""
    with Progress(*bar_columns(), console=err, transient=True, expand=True, disable=not err.is_terminal) as progress:
        yield Bar(progress, progress.add_task("", total=total))


def bar_columns() -> tuple[ProgressColumn, ...]:
    """How much is done and the time left, then what is going on, in as many lines as a narrow terminal needs."""
    said = TextColumn("{task.description}", markup=False, table_column=Column(ratio=1))  # folders are no markup
    return BarColumn(bar_width=16), MofNCompleteColumn(), TimeRemainingColumn(compact=True), said


class Bar:
    """Moves a progress bar."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def step(self, what: str) -> None:
        """One more piece of work, and what it is."""
        self._progress.update(self._task, advance=1, description=what)

    def say(self, what: str) -> None:
        """What is going on."""
        self._progress.update(self._task, description=what)

    def at(self, done: int, total: int) -> None:
        """So much is done, of so much."""
        self._progress.update(self._task, completed=done, total=total)


@contextmanager
def training_bar(what: str, quiet: bool = False) -> Iterator["TrainingBar"]:
    """A progress bar for training on a terminal's standard error, one line an epoch elsewhere."""
    hidden = quiet or not err.is_terminal
    with Progress(*bar_columns(), console=err, transient=True, expand=True, disable=hidden) as progress:
        yield TrainingBar(progress, progress.add_task(what, total=None), what, quiet)


class TrainingBar:
    """Shows where a training run is."""

    def __init__(self, progress: Progress, task: TaskID, what: str, quiet: bool) -> None:
        self._progress = progress
        self._task = task
        self._what = what
        self._quiet = quiet

    def moment(self, moment: "Moment") -> None:
        """Loss, accuracy, images per second; the time left is the bar's."""
        text = (
            f"{self._what}: epoch {moment.epoch + 1}/{moment.epochs}, loss {moment.loss:.3f}, "
            f"accuracy {moment.accuracy:.1f} %, {moment.images_per_second:.0f} images/s"
        )
        done, total = moment.epoch * moment.steps + moment.step, moment.epochs * moment.steps
        self._progress.update(self._task, description=text, completed=done, total=total)
        if moment.step == moment.steps and not err.is_terminal and not self._quiet:
            err.print(text, markup=False, highlight=False, soft_wrap=True)

    def preparing(self, what: str, done: int, total: int) -> None:
        """Images that are decoded."""
        self._progress.update(self._task, description=what, completed=done, total=total)
