"""`domainadaptor report`: tables, figures and a page from records."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from domainadaptor.cli.terminal import Exit, Json, Root, out, print_json, show_notes

if TYPE_CHECKING:  # the lab takes seconds to import
    from PIL import Image

    from domainadaptor.lab.data.domains import DomainDataset
    from domainadaptor.lab.records.runs import RunSettings
    from domainadaptor.lab.reports.error_analysis import ImageReader
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
        list[str] | None, typer.Option(metavar="NAME", help="A figure to publish, such as training; repeatable.")
    ] = None,
    root: Root = None,
    json_wanted: Json = False,
) -> None:
    """Make tables, figures and a page from records.

    Nothing is run again; the paper's numbers are shown too.

    Writes index.html, which needs no network; for each experiment a Markdown and a LaTeX file; results.csv with all
    numbers; details.csv with calibration, changed answers, time and memory by domain and class; figures as PNG and SVG.
    With the data (--root), test images whose answer changed are shown too.
    """
    from domainadaptor.lab.reports.report import as_json, build, publish, write

    found = build(folder, only, image_reader(root))
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


def image_reader(root: Path | None) -> "ImageReader":
    """Return a function that reads test images by data set, domain and name, if they are on this machine."""
    from domainadaptor.errors import AdaptationError
    from domainadaptor.lab.data.registry import open_dataset

    opened: dict[str, DomainDataset | None] = {}

    def read(run: "RunSettings", domain: str, name: str) -> "Image.Image | None":
        key = repr((run.dataset, run.data_options))
        try:
            if key not in opened:
                opened[key] = None  # stays so if it cannot be opened; the page mentions it
                opened[key] = open_dataset(run.dataset, root, **run.data_options)
            known = (found := opened[key]) and found.domains.get(domain)
            return known.read(name) if known and any(example.name == name for example in known.examples) else None
        except AdaptationError:
            return None

    return read


def _summarize(found: "ResultsReport", output: Path, files: int) -> None:
    lines = []
    for chapter in found.chapters:
        gaps = chapter.gaps()
        failed = sum(bool(gap.failed) for gap in gaps)
        state = f"{len(gaps) - failed} runs missing, {failed} failed" if gaps else "complete"
        lines.append(f"{chapter.plan.name}: {chapter.plan.title} ({state})")
    if found.training:
        recipes = len(found.training)
        lines.append(f"training: {recipes} recipe{'' if recipes == 1 else 's'}")
    lines.append(f"{files} files written; open {output / found.name}.html")
    out.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
