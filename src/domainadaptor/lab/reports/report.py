"""From a results folder to tables, figures and one page."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from domainadaptor.errors import BadFile, BadOption
from domainadaptor.lab.files import csv_text, replacing
from domainadaptor.lab.records.plans import Plan
from domainadaptor.lab.records.store import Store, has_results
from domainadaptor.lab.records.training import RECORD_FILE, TrainingRecord, read_training
from domainadaptor.lab.reports import documents
from domainadaptor.lab.reports.adhoc import adhoc_plan
from domainadaptor.lab.reports.details import DETAIL
from domainadaptor.lab.reports.figures import ReportFigure, render
from domainadaptor.lab.reports.paper import place_in_paper
from domainadaptor.lab.reports.sections import Chapter, Section, chapters
from domainadaptor.lab.reports.tables import ResultNumber
from domainadaptor.lab.reports.training import TrainingTable, training_tables
from domainadaptor.options import suggestion


@dataclass(frozen=True)
class ResultsReport:
    """Everything that the records of a folder show."""

    chapters: tuple[Chapter, ...]
    training: Sequence[TrainingTable] = ()
    corrupt: tuple[str, ...] = ()  # one sentence per corrupt record

    def sections(self) -> list[tuple[str, Section]]:
        """Return all tables, each with the name of its experiment."""
        return [(chapter.plan.name, section) for chapter in self.chapters for section in chapter.sections]

    def problems(self) -> list[str]:
        """Return what needs attention, one line each."""
        found = list(self.corrupt)
        for name, section in self.sections():
            problem = section.view.problem
            found += [f"{name}, {section.title}: {problem}"] if problem else []
        return found

    def figures(self) -> list[ReportFigure]:
        """Return the figures of all sections."""
        return [figure for _, section in self.sections() for figure in section.view.figures]

    def numbers(self) -> pd.DataFrame:
        """Return the numbers of all tables in long form."""
        names = ["experiment", "table", *ResultNumber.__dataclass_fields__]
        lines = [
            (name, part.title, *vars(number).values()) for name, part in self.sections() for number in part.view.numbers
        ]
        return pd.DataFrame(lines, columns=names, dtype=object)

    def details(self) -> pd.DataFrame:
        """Return changed answers, calibration, time and memory by domain and class, in long form."""
        lines = [(name, part.title, *line) for name, part in self.sections() for line in part.details]
        return pd.DataFrame(lines, columns=["experiment", "table", *DETAIL])


def build(folder: Path) -> ResultsReport:
    """Read what `run`, `evaluate --output` or `train --output` wrote; training runs may be anywhere below the folder.

    Raises:
        BadFile: There is nothing to report.
    """
    if not folder.is_dir():
        raise BadFile(f"no folder at {str(folder)!r}: expected what `domainadaptor run` writes")
    corrupt: list[str] = []
    trained = {record.name: record for record in _training_records(folder, corrupt)}
    plans: list[Plan] = []
    records = {}
    if has_results(folder):
        with Store(folder, corrupt.append, readonly=True) as store:
            records, plans = store.runs(), sorted(store.plans(), key=_order)
            trained |= {record.name: record for record in store.trainings()}
    if adhoc := adhoc_plan(records.values(), plans):
        plans.append(adhoc)
    if not plans and not trained:
        reasons = f" ({'; '.join(corrupt)})" if corrupt else ""
        raise BadFile(
            f"no records in {str(folder)!r}{reasons}: expected a folder that `domainadaptor run`, `evaluate --output` "
            "or `train --output` wrote"
        )
    return ResultsReport(tuple(chapters(plans, records)), training_tables([*trained.values()]), tuple(corrupt))


def write(report: ResultsReport, output: Path) -> list[Path]:
    """Write the page, each experiment as Markdown and LaTeX, all numbers as CSV, and figures as PNG and SVG.

    Raises:
        BadFile: The files cannot be written.
    """
    drawn = {found.name: render(found.draw, ("png", "svg")) for found in report.figures()}
    files: dict[str, str | bytes] = dict(_documents(report, drawn))
    files |= {"results.csv": _csv(report.numbers()), "details.csv": _csv(report.details())}
    texts = {}
    for chapter in report.chapters:
        files[f"{chapter.plan.name}.tex"] = documents.render("tables.tex.j2", **vars(chapter))
        texts[chapter.plan.name] = _markdown(chapter, drawn, page=True)
    if report.training:
        texts["training"] = str(files["training.md"])
    images = {name: formats["png"] for name, formats in drawn.items()}
    files["index.html"] = documents.page(texts, images, report=report)
    files |= {f"figures/{name}.{ending}": data for name, formats in drawn.items() for ending, data in formats.items()}
    return _save(files, output)


def publish(report: ResultsReport, output: Path, figures: Collection[str] = ()) -> list[Path]:
    """Write only what belongs into version control: Markdown, all numbers as one CSV, and the named figures as PNG.

    Raises:
        BadFile: The files cannot be written.
        BadOption: There is no such figure.
    """
    known = {found.name: found for found in report.figures()}
    for name in figures:
        if name not in known:
            raise BadOption(f"--figure {name!r}: {suggestion(name, known)}")
    files: dict[str, str | bytes] = dict(_documents(report, figures))
    files["results.csv"] = _csv(report.numbers())
    files |= {f"figures/{name}.png": render(known[name].draw, dpi=90)["png"] for name in figures}
    return _save(files, output)


def _documents(report: ResultsReport, figures: Collection[str]) -> dict[str, str]:
    """Return the Markdown files; links go to the given figures only."""
    files = {f"{chapter.plan.name}.md": _markdown(chapter, figures) for chapter in report.chapters}
    files["index.md"] = documents.render("index.md.j2", report=report)
    if report.training:
        files["training.md"] = documents.render("training.md.j2", tables=report.training)
    return files


def _markdown(chapter: Chapter, figures: Collection[str], *, page: bool = False) -> str:
    return documents.render("experiment.md.j2", **vars(chapter), figures=figures, page=page)


def _csv(frame: pd.DataFrame) -> str:
    texts = {name: column.map(csv_text) for name, column in frame.items() if column.map(type).eq(str).all()}
    return str(frame.assign(**texts).to_csv(index=False, lineterminator="\n"))


def _save(files: dict[str, str | bytes], output: Path) -> list[Path]:
    try:
        (output / "figures").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadFile(f"cannot make the folder {str(output)!r}: {error.strerror}; choose another --output") from error
    for name, content in files.items():
        with replacing(output / name) as beside:
            beside.write_bytes(content.encode() if isinstance(content, str) else content)
    return [output / name for name in files]


def _order(plan: Plan) -> tuple[int, str]:
    """Sort as in the paper, then by name."""
    return min((place_in_paper(table.paper.table) for table in plan.tables if table.paper), default=999), plan.name


def _training_records(folder: Path, corrupt: list[str]) -> list[TrainingRecord]:
    found = []
    for path in sorted(folder.rglob(RECORD_FILE)):
        try:
            found.append(read_training(path))
        except ValueError as error:
            corrupt.append(f"{path.relative_to(folder).as_posix()} is not a training record: {error}")
    return found
