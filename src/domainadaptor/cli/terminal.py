"""Options, output, progress bars and exit codes that commands share."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column

from domainadaptor.cli.help import ADAPTATION, DATA, NETWORK, RUN, option
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
    DOUBTFUL = 5  # the predictions may be worse than the source model's
    INTERRUPTED = 130


def check_methods(value: Any) -> Any:
    """Report a wrong name before anything is loaded; from then on, a function of the user's own is accepted."""
    from domainadaptor.catalog import method_info

    for name in [value] if isinstance(value, str) else value or ():
        method_info(name, allow_import=True)
    return value


def _known_methods(typed: str) -> list[str]:
    """Return the methods that complete what was typed, for the shell."""
    from domainadaptor.catalog import list_methods

    return [name for name in list_methods() if name.startswith(typed)]


NETWORK_HELP = "A network of torchvision, timm or CIFAR, such as resnet50; a checkpoint; or a Hugging Face folder."
_WEIGHTS = "For a network given by name: a .safetensors, .pt or .pth file, or `pretrained`. Nothing is downloaded."
_OF_METHODS: dict[str, Any] = {"callback": check_methods, "autocompletion": _known_methods}
_METHOD = "A method: see `domainadaptor methods`; or file.py:function of your own."

Network = Annotated[str, typer.Argument(metavar="NETWORK", help=NETWORK_HELP)]
Dataset = Annotated[str, typer.Argument(metavar="DATASET", help="pacs, vlcs, digits, folders …: see `data list`.")]
Weights = Annotated[str | None, option("FILE", _WEIGHTS, NETWORK)]
Size = Annotated[int | None, option("PIXELS", "Side of the input images. Default: the network's own.", NETWORK, min=1)]
Classes = Annotated[Path | None, option("FILE", "Class names by logit: one per line, or a JSON list.", NETWORK)]
Device = Annotated[str, option("NAME", "cpu, cuda, cuda:1, mps, or auto: a GPU if available.", RUN)]
Method = Annotated[str, option("NAME", _METHOD, ADAPTATION, **_OF_METHODS)]
Methods = Annotated[list[str] | None, option("NAME", f"{_METHOD} Repeatable.", ADAPTATION, "--method", **_OF_METHODS)]
BatchSize = Annotated[int, option("N", "Images per batch.", ADAPTATION, min=1)]
Seed = Annotated[int, option("N", "Seed of everything random, for repeatable results.", RUN, min=0)]
Root = Annotated[Path | None, option("DIR", "Data directory. Default: $DOMAINADAPTOR_DATA.", DATA)]
Cache = Annotated[bool, option(None, "Keep decoded images on disk.", RUN)]
Json = Annotated[bool, option(None, "Print JSON instead of text.", RUN, "--json")]


def find_device(name: str) -> "torch.device":
    """Return the device of that name; BadOption if it is not available."""
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
    """Raise BadOption if a network given by name comes without weights."""
    from domainadaptor.lab.networks.weights import includes_weights

    if weights in (None, "none") and not includes_weights(network):
        raise BadOption(
            f"No weights given for {network!r}. Pass --weights FILE, --weights pretrained for published weights on "
            "this machine, or a checkpoint, a Hugging Face folder or a run of `domainadaptor train` instead of the name"
        )


def print_text(text: str, console: Console = out) -> None:
    """Print text as it is; on a terminal, lines break between words. A path stays whole, so that it can be copied."""
    if console.is_terminal:
        lines = (wrap(line, console.width, break_long_words=False, break_on_hyphens=False) for line in text.split("\n"))
        text = "\n".join("\n".join(parts) for parts in lines)
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def count(number: int, one: str, many: str = "") -> str:
    """Return a number and what it counts, in the singular or the plural."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def show_notes(notes: Iterable[str]) -> None:
    """Print remarks on a result to standard error."""
    for note in notes:
        print_text(f"note: {note}", err)


def show_warning(what: str, warnings: Sequence[str]) -> None:
    """Print what speaks against predictions most, if anything does, to standard error."""
    for warning in warnings[:1]:
        print_text(f"warning: {what} may be worse than the source model's. {warning}", err)


def show_skipped(skipped: Iterable[tuple[str, str]]) -> None:
    """Print files that were skipped, and why, to standard error."""
    for name, why in skipped:
        print_text(f"skipped {name}: {why}", err)


def print_json(value: object) -> None:
    """Print JSON alone on standard output."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def bar_columns() -> tuple[ProgressColumn, ...]:
    """Return the columns: amount done, time left, and a description that wraps on a narrow terminal."""
    description = TextColumn("left  {task.description}", markup=False, table_column=Column(ratio=1))
    return BarColumn(bar_width=16), MofNCompleteColumn(), TimeRemainingColumn(compact=True), description


@contextmanager
def progress_bar(total: int | None, what: str = "", lines: bool = False, quiet: bool = False) -> Iterator["Bar"]:
    """Show a progress bar if standard error is a terminal; otherwise, if `lines`, print each new description."""
    hidden = quiet or not err.is_terminal
    with Progress(*bar_columns(), console=err, transient=True, expand=True, disable=hidden) as progress:
        yield Bar(progress, what, total, lines and not quiet and not err.is_terminal)


class Bar:
    """A progress bar on the screen."""

    def __init__(self, progress: Progress, what: str, total: int | None, lines: bool) -> None:
        self._progress, self._task = progress, progress.add_task(what, total=total)
        self._title, self._last, self._lines = what, "", lines

    def step(self, what: str) -> None:
        """Advance by one, with a new description."""
        if self._lines and what != self._last:
            print_text(what, err)
        self._last = what
        self._progress.update(self._task, advance=1, description=what)

    def at(self, done: int, total: int) -> None:
        """Set how much is done, out of how much."""
        self._progress.update(self._task, completed=done, total=total)

    def show(self, what: str, done: int | None = None, total: int | None = None) -> None:
        """Set the description and, if given, how much is done."""
        self._progress.update(self._task, description=what, completed=done, total=total)

    def moment(self, moment: "TrainingProgress") -> None:
        """Show loss, accuracy and images per second of a training step; print a line at the end of an epoch."""
        text = (
            f"{self._title}: epoch {moment.epoch + 1}/{moment.epochs}, loss {moment.loss:.3f}, "
            f"accuracy {moment.accuracy:.1f} %, {moment.images_per_second:.0f} images/s"
        )
        self.show(text, moment.epoch * moment.steps + moment.step, moment.epochs * moment.steps)
        if self._lines and moment.step == moment.steps:
            print_text(text, err)
