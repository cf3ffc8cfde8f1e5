"""`domainadaptor report`: tables, figures and a page from records."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from domainadaptor.cli.terminal import Exit, Json, Root, out, print_json, show_notes
from domainadaptor.errors import AdaptationError

if TYPE_CHECKING:  # they take seconds to import
    from PIL import Image

    from domainadaptor.lab.data.domains import DomainDataset
    from domainadaptor.lab.reports.error_analysis import ImageReader
    from domainadaptor.lab.reports.report import Report


def report(
    folder: Annotated[
        Path,
        typer.Argument(help="What `run` or `evaluate` wrote, or a folder with records of training runs, at any depth."),
    ] = Path("results"),
    output: Annotated[
        Path | None, typer.Option(help="Folder for the page, tables and figures; FOLDER itself otherwise.")
    ] = None,
    only: Annotated[
        str | None, typer.Option(metavar="NAME", help="One experiment alone, as comparison; its page is NAME.html.")
    ] = None,
    root: Root = None,
    json_wanted: Json = False,
) -> None:
    """Make tables, figures and one HTML page from records, beside the paper's numbers; nothing is run again.

    Writes index.html, which needs no network, and for each experiment a Markdown, a CSV and a LaTeX file, with figures
    as PNG and SVG; details/ has calibration, changed answers, time, memory and every class, by domain. With the data
    (--root), it also shows test images whose answer changed.
    """
    from domainadaptor.lab.reports.report import as_json, build, write

    found = build(folder, only, image_reader(root))
    files = write(found, output or folder)
    if json_wanted:
        print_json(as_json(found, files))
    else:
        _say(found, output or folder, len(files))
    show_notes(found.problems())
    if found.damaged:
        raise typer.Exit(Exit.SOME_SKIPPED)


def image_reader(root: Path | None) -> "ImageReader":
    """Reads test images by data set, domain and name, where they are on this machine."""
    from domainadaptor.lab.data.registry import open_dataset

    opened: dict[str, DomainDataset | None] = {}

    def dataset(run: Mapping[str, Any]) -> "DomainDataset | None":
        key = repr((run.get("dataset"), run.get("data_options")))
        if key not in opened:
            try:
                opened[key] = open_dataset(str(run.get("dataset")), root, **run.get("data_options", {}))
            except AdaptationError:  # the page says that it is not there
                opened[key] = None
        return opened[key]

    def read(run: Mapping[str, Any], domain: str, name: str) -> "Image.Image | None":
        there = dataset(run)
        known = there and there.domains.get(domain)
        if not known or not any(example.name == name for example in known.examples):
            return None
        try:
            return known.read(name)
        except AdaptationError:
            return None

    return read


def _say(found: "Report", output: Path, files: int) -> None:
    for chapter in found.chapters:
        gaps = [gap for section in chapter.sections for gap in section.shown.gaps]
        failed = sum(bool(gap.failed) for gap in gaps)
        state = "complete" if not gaps else f"{len(gaps) - failed} runs missing, {failed} failed"
        out.print(f"{chapter.plan.name}: {chapter.plan.title} ({state})", markup=False, highlight=False, soft_wrap=True)
    if found.training:
        out.print(f"training: {len(found.training)} ways of training", highlight=False)
    page = output / f"{found.name}.html"
    out.print(f"{files} files written; open {page}", markup=False, highlight=False, soft_wrap=True)
