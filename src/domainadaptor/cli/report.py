"""`domainadaptor report`: tables, figures and a page from records."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from domainadaptor.cli.terminal import Exit, Json, out, print_json, show_notes

if TYPE_CHECKING:  # the lab takes seconds to import
    from domainadaptor.lab.reports.report import ResultsReport


def report(
    folder: Annotated[
        Path,
        typer.Argument(help="A results folder of `run` or `evaluate`, or a folder with training runs at any depth."),
    ] = Path("results"),
    output: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for page, tables and figures; FOLDER otherwise.")
    ] = None,
    only: Annotated[
        str | None, typer.Option(metavar="NAME", help="One experiment, such as comparison; its page is NAME.html.")
    ] = None,
    publish_to: Annotated[
        Path | None,
        typer.Option(
            "--publish", metavar="DIR", help="Also write what belongs in git: Markdown, results.csv, --figure."
        ),
    ] = None,
    figure: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A figure to publish, such as time; repeatable.")
    ] = None,
    json_wanted: Json = False,
) -> None:
    """Make tables, figures and a page from records.

    Nothing is run again; the paper's numbers are shown too.

    Writes index.html, which needs no network; for each experiment a Markdown and a LaTeX file; results.csv with all
    numbers; details.csv with calibration, changed answers, time and memory by domain and class; figures as PNG and SVG.
    """
    from domainadaptor.lab.reports.report import as_json, build, publish, write

    found = build(folder, only)
    files = write(found, output or folder)
    if publish_to is not None:
        files += publish(found, publish_to, figure or [])
    if json_wanted:
        print_json(as_json(found, files))
    else:
        _summarize(found, output or folder, len(files))
    show_notes(found.problems())
    if found.corrupt:
        raise typer.Exit(Exit.SOME_SKIPPED)


def _summarize(found: "ResultsReport", output: Path, files: int) -> None:
    lines = []
    for chapter in found.chapters:
        gaps = chapter.gaps()
        failed = sum(gap.failed for gap in gaps)
        state = f"{len(gaps) - failed} runs missing, {failed} failed" if gaps else "complete"
        lines.append(f"{chapter.plan.name}: {chapter.plan.title} ({state})")
    if found.training:
        recipes = len(found.training)
        lines.append(f"training: {recipes} recipe{'' if recipes == 1 else 's'}")
    lines.append(f"{files} files written; open {output / found.name}.html")
    out.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
