"""Options, output, progress bars and exit codes that commands share."""

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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

from domainadaptor.cli.help import ADAPTATION, DATA, NETWORK, RUN
from domainadaptor.errors import BadOption

if TYPE_CHECKING:  # they take seconds to import
    import torch

    from domainadaptor.lab.training.fit import TrainingProgress

out = Console()
err = Console(stderr=True)


class Exit(IntEnum):
    """Exit codes besides 0, success, and 2, a wrong command line."""

    FAILED = 1
    SOME_SKIPPED = 3
    NOT_NEUTRAL = 4
    INTERRUPTED = 130


def _check_methods(value: Any) -> Any:
    """Report a wrong name before anything is loaded; from then on, a function of the user's own is accepted."""
    from domainadaptor.catalog import method_info

    for name in [value] if isinstance(value, str) else value or ():
        method_info(name, allow_import=True)
    return value


Network = Annotated[
    str,
    typer.Argument(
        metavar="NETWORK",
        help="The name of a torchvision, timm or CIFAR network, such as resnet50 or timm:mobilenetv3_small_100; or a "
        "checkpoint, which includes weights, classes and preprocessing.",
    ),
]
Dataset = Annotated[
    str, typer.Argument(metavar="DATASET", help="pacs, vlcs, office-home, digits, folders …: see `data list`.")
]
Weights = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=NETWORK,
        help="For a network given by name: a .safetensors, .pt or .pth file, or `pretrained` for published weights on "
        "this machine. Nothing is downloaded.",
    ),
]
Size = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="PIXELS", rich_help_panel=NETWORK, help="Side of the input images. Default: the network's own."
    ),
]
Classes = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=NETWORK,
        help="Class names in the order of the logits: one per line, or a JSON list. Default: ImageNet's or numbers.",
    ),
]
Device = Annotated[
    str, typer.Option(metavar="NAME", rich_help_panel=RUN, help="cpu, cuda, cuda:1, mps, or auto: a GPU if available.")
]
Method = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        callback=_check_methods,
        rich_help_panel=ADAPTATION,
        help="The method: see `domainadaptor methods`; or package.module:function of your own.",
    ),
]
Methods = Annotated[
    list[str] | None,
    typer.Option(
        "--method",
        metavar="NAME",
        callback=_check_methods,
        rich_help_panel=ADAPTATION,
        help="A method: see `domainadaptor methods`; may be repeated.",
    ),
]
BatchSize = Annotated[int, typer.Option(min=1, metavar="N", rich_help_panel=ADAPTATION, help="Images per batch.")]
Seed = Annotated[
    int,
    typer.Option(min=0, metavar="N", rich_help_panel=RUN, help="Seed of everything random, for repeatable results."),
]
Root = Annotated[
    Path | None,
    typer.Option(metavar="DIR", rich_help_panel=DATA, help="Data directory. Default: $DOMAINADAPTOR_DATA."),
]
Cache = Annotated[bool, typer.Option(rich_help_panel=RUN, help="Keep decoded images on disk.")]
Json = Annotated[bool, typer.Option("--json", rich_help_panel=RUN, help="Print JSON instead of text.")]


def find_device(name: str) -> "torch.device":
    """Return the device of that name.

    Raises:
        BadOption: It is not available.
    """
    import torch

    if name == "auto":
        return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except Exception as error:
        raise BadOption(f"--device {name!r} is not available: {str(error).splitlines()[0]}; use auto or cpu") from error
    return device


def check_weights(network: str, weights: str | None) -> None:
    """Check that a network given by name comes with weights.

    Raises:
        BadOption: It has none.
    """
    from domainadaptor.lab.networks.weights import is_weights_file

    if weights in (None, "none") and not is_weights_file(network):
        raise BadOption(
            f"No weights given for {network!r}. Pass --weights FILE, --weights pretrained for published weights on "
            "this machine, or a checkpoint written by `domainadaptor train` instead of the name"
        )


def print_text(text: str, console: Console = out) -> None:
    """Print text as it is: no markup, no colors, no line breaks."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def show_notes(notes: Iterable[str]) -> None:
    """Print remarks on a result to standard error."""
    for note in notes:
        print_text(f"note: {note}", err)


def print_json(value: object) -> None:
    """Print JSON alone on standard output."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


@contextmanager
def progress_bar(total: int, what: str = "", lines: bool = False) -> Iterator["Bar"]:
    """Show a progress bar if standard error is a terminal; otherwise, if `lines`, print each new description."""
    with Progress(*bar_columns(), console=err, transient=True, expand=True, disable=not err.is_terminal) as progress:
        yield Bar(progress, progress.add_task(what, total=total), lines and not err.is_terminal)


def bar_columns() -> tuple[ProgressColumn, ...]:
    """Return the columns: amount done, time left, and a description that wraps on a narrow terminal."""
    description = TextColumn("left  {task.description}", markup=False, table_column=Column(ratio=1))
    return BarColumn(bar_width=16), MofNCompleteColumn(), TimeRemainingColumn(compact=True), description


class Bar:
    """A progress bar on the screen."""

    def __init__(self, progress: Progress, task: TaskID, lines: bool = False) -> None:
        self._progress = progress
        self._task = task
        self._lines = lines
        self._what = ""

    def step(self, what: str) -> None:
        """Advance by one, with a new description."""
        if self._lines and what != self._what:
            print_text(what, err)
        self._what = what
        self._progress.update(self._task, advance=1, description=what)

    def say(self, what: str) -> None:
        """Change the description."""
        self._progress.update(self._task, description=what)

    def at(self, done: int, total: int) -> None:
        """Set how much is done, out of how much."""
        self._progress.update(self._task, completed=done, total=total)


@contextmanager
def training_bar(what: str, quiet: bool = False) -> Iterator["TrainingBar"]:
    """Show a progress bar for training if standard error is a terminal; print one line per epoch otherwise."""
    hidden = quiet or not err.is_terminal
    with Progress(*bar_columns(), console=err, transient=True, expand=True, disable=hidden) as progress:
        yield TrainingBar(progress, progress.add_task(what, total=None), what, quiet)


class TrainingBar:
    """The progress of a training run on the screen."""

    def __init__(self, progress: Progress, task: TaskID, what: str, quiet: bool) -> None:
        self._progress = progress
        self._task = task
        self._what = what
        self._quiet = quiet

    def moment(self, moment: "TrainingProgress") -> None:
        """Show loss, accuracy and images per second."""
        text = (
            f"{self._what}: epoch {moment.epoch + 1}/{moment.epochs}, loss {moment.loss:.3f}, "
            f"accuracy {moment.accuracy:.1f} %, {moment.images_per_second:.0f} images/s"
        )
        done, total = moment.epoch * moment.steps + moment.step, moment.epochs * moment.steps
        self._progress.update(self._task, description=text, completed=done, total=total)
        if moment.step == moment.steps and not err.is_terminal and not self._quiet:
            print_text(text, err)

    def preparing(self, what: str, done: int, total: int) -> None:
        """Show how many images are decoded."""
        self._progress.update(self._task, description=what, completed=done, total=total)
