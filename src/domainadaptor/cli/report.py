"""`domainadaptor report`: tables, figures and a page from records."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from domainadaptor.cli import terminal
from domainadaptor.cli.help import option

if TYPE_CHECKING:  # the lab takes seconds to import
    from domainadaptor.lab.reports.report import ResultsReport

_FOLDER = "A results folder of `run` or `evaluate`, or a folder with training runs at any depth."
_PUBLISH = "Also write what belongs in git: Markdown, results.csv, --figure."


def report(
    folder: Annotated[Path, typer.Argument(help=_FOLDER)] = Path("results"),
    output: Annotated[Path | None, option("DIR", "Folder for page, tables and figures; FOLDER otherwise.")] = None,
    only: Annotated[str | None, option("NAME", "One experiment, such as comparison; its page is NAME.html.")] = None,
    publish_to: Annotated[Path | None, option("DIR", _PUBLISH, None, "--publish")] = None,
    figure: Annotated[list[str] | None, option("NAME", "A figure to publish, such as time; repeatable.")] = None,
    json_wanted: terminal.Json = False,
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
        terminal.print_json(as_json(found, files))
    else:
        _summarize(found, output or folder, len(files))
    terminal.show_notes(found.problems())
    if found.corrupt:
        raise typer.Exit(terminal.Exit.SOME_SKIPPED)


def _summarize(found: "ResultsReport", output: Path, files: int) -> None:
    lines = []
    for chapter in found.chapters:
        gaps = chapter.gaps()
        failed = sum(gap.failed for gap in gaps)
        state = f"{terminal.count(len(gaps) - failed, 'run')} missing, {failed} failed" if gaps else "complete"
        lines.append(f"{chapter.plan.name}: {chapter.plan.title} ({state})")
    if found.training:
        lines.append(f"training: {terminal.count(len(found.training), 'recipe')}")
    lines.append(f"{terminal.count(files, 'file')} written; open {output / found.name}.html")
    terminal.print_text("\n".join(lines))
