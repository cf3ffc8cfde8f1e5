"""The program `domainadaptor`."""

import sys
from importlib import import_module
from pkgutil import iter_modules
from typing import Annotated

import typer

from domainadaptor import cli
from domainadaptor.cli.help import PlainCommand
from domainadaptor.cli.process import prepare_process
from domainadaptor.cli.terminal import Exit, err, print_text
from domainadaptor.errors import AdaptationError

app = typer.Typer(
    name="domainadaptor",
    epilog="Exit codes: 0 success, 1 failure, 2 wrong command line, 3 some images or records were skipped, "
    "4 wrapping a network changed its predictions, 5 adaptation may have done harm, 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _add_commands() -> None:
    """Add every module that has a function of its own name, or a Typer named `app` for several subcommands.

    Help shows the module's EXAMPLES, commands that a test parses.
    """
    for found in iter_modules(cli.__path__):
        if found.name == __name__.rpartition(".")[2]:
            continue
        module = import_module(f"{cli.__name__}.{found.name}")
        if isinstance(group := getattr(module, "app", None), typer.Typer):
            app.add_typer(group, name=found.name)
        elif callable(command := getattr(module, found.name, None)):
            app.command(found.name, cls=PlainCommand, epilog=getattr(module, "EXAMPLES", None))(command)


def _show_version(wanted: bool) -> None:
    if wanted:
        import domainadaptor

        typer.echo(f"domainadaptor {domainadaptor.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Adapt a trained image classifier at test time to data it was not trained on."""


_add_commands()


def main() -> None:
    """Run the program. An expected error is one message and an exit code, not a traceback."""
    prepare_process()
    try:
        app(prog_name="domainadaptor")
    except AdaptationError as error:
        err.print("error:", style="bold red", end=" ")
        print_text(str(error), err)
        sys.exit(Exit.FAILED)
