"""From a folder of records to tables, figures and one page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from domainadaptor.errors import BadFile, BadOption
from domainadaptor.lab.files import replacing
from domainadaptor.lab.reports import training
from domainadaptor.lab.reports.adhoc import loose_plan
from domainadaptor.lab.reports.error_analysis import ImageReader
from domainadaptor.lab.reports.figures.canvas import NEEDED, Drawn, can_draw, drawn
from domainadaptor.lab.reports.page import page
from domainadaptor.lab.reports.records import Results, read_results
from domainadaptor.lab.reports.sections import Chapter, chapters
from domainadaptor.lab.reports.writers import csv, latex, markdown
from domainadaptor.options import suggestion


@dataclass(frozen=True)
class Report:
    """Everything that can be said from the records of a folder."""

    chapters: tuple[Chapter, ...]
    training: tuple[training.Row, ...]
    damaged: Mapping[str, str]
    name: str = "index"  # of the page

    def problems(self) -> list[str]:
        """What somebody has to look at, one line each."""
        said = [f"{name} is damaged and left out: {why}" for name, why in self.damaged.items()]
        for chapter in self.chapters:
            for section in chapter.sections:
                if section.shown.problem:
                    said.append(f"{chapter.plan.name}, {section.title}: {section.shown.problem}")
                said += [section.note] if section.note else []
        return said


def build(folder: Path, only: str | None = None, read: ImageReader | None = None) -> Report:
    """The report of a folder.

    Args:
        folder: What `run` wrote; records of training runs anywhere below it are told of too.
        only: The name of one experiment; all otherwise.
        read: Reads test images, to show those whose answer changed.

    Raises:
        BadFile: There is nothing to report.
        BadOption: There is no such experiment.
    """
    results = read_results(folder)
    if loose := loose_plan(results.records, results.plans):
        results = Results((*results.plans, loose), results.records, results.damaged)
    damaged = dict(results.damaged)
    runs = [] if only else training.rows(training.read_records(folder, damaged))
    if not results.plans and not runs:
        broken = f"; damaged: {', '.join(damaged)}" if damaged else ""
        raise BadFile(
            f"no plan in {str(folder / 'plans')!r} and no record of a training run below {str(folder)!r}{broken}. "
            "Expected a folder that `domainadaptor run`, `evaluate --output` or `train --output` wrote"
        )
    if only is not None:
        chosen = tuple(plan for plan in results.plans if plan.name == only)
        if not chosen:
            raise BadOption(f"--only {only!r}: {suggestion(only, [plan.name for plan in results.plans])}")
        results = Results(chosen, results.records, results.damaged)
    return Report(tuple(chapters(results, read)), tuple(runs), damaged, only or "index")


def write(report: Report, output: Path) -> list[Path]:
    """Writes the page, and each experiment as Markdown, CSV and LaTeX with its details, and figures as PNG and SVG.

    Raises:
        BadFile: It cannot be written there.
    """
    try:
        for part in ("figures", "details"):
            (output / part).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadFile(f"cannot make the folder {str(output)!r}: {error.strerror}; choose another --output") from error
    figures = _draw(report)
    files: dict[str, bytes] = {}
    tables = training.tables(report.training)
    notes = [] if can_draw() else [f"There are no figures: {NEEDED}."]
    files[f"{report.name}.html"] = page(report.chapters, tables, report.damaged, figures, notes).encode()
    for chapter in report.chapters:
        for ending, writer in (("md", markdown), ("csv", csv), ("tex", latex)):
            files[f"{chapter.plan.name}.{ending}"] = writer.chapter(chapter).encode()
        if more := csv.details(chapter):
            files[f"details/{chapter.plan.name}.csv"] = more.encode()
    if report.name == "index":
        files["index.md"] = markdown.contents(report.chapters, bool(report.training)).encode()
    if report.training:
        files["training.md"] = training.markdown(report.training, training.FIGURE in figures).encode()
    for name, figure in figures.items():
        files[f"figures/{name}.png"], files[f"figures/{name}.svg"] = figure
    for name, content in files.items():
        with replacing(output / name) as beside:
            beside.write_bytes(content)
    return [output / name for name in files]


def as_json(report: Report, files: Sequence[Path]) -> dict[str, Any]:
    """The report for programs."""
    return {
        "files": [str(path) for path in files],
        "damaged": dict(report.damaged),
        "experiments": {
            chapter.plan.name: {
                "title": chapter.plan.title,
                "tables": [
                    {
                        "title": section.title,
                        "problem": section.shown.problem or None,
                        "numbers": [{**vars(fact), "difference": fact.difference} for fact in section.shown.facts],
                        "missing": [vars(gap) for gap in section.shown.gaps],
                        "remarks": list(section.remarks),
                    }
                    for section in chapter.sections
                ],
            }
            for chapter in report.chapters
        },
        "training": [vars(row) for row in report.training],
    }


def _draw(report: Report) -> dict[str, Drawn]:
    if not can_draw():
        return {}
    found = {
        figure.name: drawn(figure.draw)
        for chapter in report.chapters
        for section in chapter.sections
        for figure in section.figures
    }
    if report.training:
        found[training.FIGURE] = drawn(lambda: training.draw(report.training))
    return found
