"""`domainadaptor report`: tables and figures from records."""

from pathlib import Path
from typing import Annotated

import typer

from domainadaptor.cli.terminal import out
from domainadaptor.errors import BadFile
from domainadaptor.files import replacing
from domainadaptor.reports import training as training_report

app = typer.Typer(no_args_is_help=True, help="Tables and figures from records of runs.")


@app.callback()
def _several() -> None:
    """Tables and figures from records of runs."""


@app.command("training")
def training(
    records: Annotated[Path, typer.Argument(help="A folder with records of training runs, at any depth.")],
    output: Annotated[Path, typer.Option(help="Folder for training.md and training.png.")] = Path(),
) -> None:
    """Accuracy of trained networks at home and on the domain that was left out, as a table and a figure."""
    rows = training_report.rows(training_report.read_records(records))
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadFile(f"cannot make the folder {str(output)!r}: {error.strerror}; choose another --output") from error
    text = training_report.markdown(rows)
    with replacing(output / "training.md") as path:
        path.write_text(text, encoding="utf-8")
    training_report.draw(rows, output / "training.png")
    out.print(text, markup=False, highlight=False, soft_wrap=True)
    out.print(f"{output / 'training.md'} and {output / 'training.png'} written", highlight=False, soft_wrap=True)
