"""`domainadaptor report`: tables, figures and a page from records."""

from pathlib import Path
from typing import Annotated

import typer

from domainadaptor.cli import terminal
from domainadaptor.cli.help import option

EXAMPLES = r"""
domainadaptor report results
domainadaptor report results --output pages
"""

_FOLDER = "A results folder of `run` or `evaluate`, or a folder with training runs at any depth."
_PUBLISH = "Also write what belongs in git: Markdown, results.csv, --figure."


def report(
    folder: Annotated[Path, typer.Argument(help=_FOLDER)] = Path("results"),
    output: Annotated[Path | None, option("DIR", "Folder for page, tables and figures; FOLDER otherwise.")] = None,
    publish_to: Annotated[Path | None, option("DIR", _PUBLISH, None, "--publish")] = None,
    figure: Annotated[list[str] | None, option("NAME", "A figure to publish, such as time; repeatable.")] = None,
) -> None:
    """Make tables, figures and a page from records.

    Nothing is run again; the paper's numbers are shown too.

    Writes index.html, which needs no network; for each experiment a Markdown and a LaTeX file; results.csv with all
    numbers; details.csv with calibration, changed answers, time and memory by domain and class; figures as PNG and SVG.
    """
    from domainadaptor.lab.reports.report import build, publish, write

    found = build(folder)
    files = write(found, output or folder)
    if publish_to is not None:
        files += publish(found, publish_to, figure or [])
    lines = []
    for chapter in found.chapters:
        gaps = chapter.gaps()
        failed = sum(gap.failed for gap in gaps)
        state = f"{terminal.count(len(gaps) - failed, 'run')} missing, {failed} failed" if gaps else "complete"
        lines.append(f"{chapter.plan.name}: {chapter.plan.title} ({state})")
    if found.training:
        lines.append(f"training: {terminal.count(sum(len(part.printed.lines) for part in found.training), 'recipe')}")
    lines.append(f"{terminal.count(len(files), 'file')} written; open {(output or folder) / 'index.html'}")
    terminal.print_text("\n".join(lines))
    terminal.show_notes(found.problems())
    if found.corrupt:
        raise typer.Exit(terminal.Exit.SOME_SKIPPED)
