"""From a results folder to tables, figures and one page."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from domainadaptor.errors import BadFile, BadOption
from domainadaptor.lab.files import replacing
from domainadaptor.lab.records.plans import Plan
from domainadaptor.lab.records.store import Store, has_results
from domainadaptor.lab.records.training import RECORD_FILE, TrainingRecord, read_training
from domainadaptor.lab.reports import documents
from domainadaptor.lab.reports.adhoc import adhoc_plan
from domainadaptor.lab.reports.figures import ReportFigure, render
from domainadaptor.lab.reports.paper import place_in_paper
from domainadaptor.lab.reports.sections import Chapter, Section, chapters
from domainadaptor.lab.reports.training import TrainingRow, training_rows, training_tables
from domainadaptor.options import suggestion

_NUMBER = ("group", "row", "column", "measure", "value", "deviation", "seeds", "paper", "paper_deviation", "difference",
           "state", "reason")  # fmt: skip
_DETAIL = ("group", "row", "column", "domain", "class", "measure", "value")


@dataclass(frozen=True)
class ResultsReport:
    """Everything that the records of a folder show."""

    chapters: tuple[Chapter, ...]
    training: tuple[TrainingRow, ...] = ()
    corrupt: tuple[str, ...] = ()  # one sentence per corrupt record
    name: str = "index"  # of the page

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
        lines = [
            (name, section.title, *(getattr(number, field) for field in _NUMBER))
            for name, section in self.sections()
            for number in section.view.numbers
        ]
        return pd.DataFrame(lines, columns=["experiment", "table", *_NUMBER], dtype=object)

    def details(self) -> pd.DataFrame:
        """Return changed answers, calibration, time and memory by domain and class, in long form."""
        names = ["experiment", "table", *_DETAIL]
        frames = [
            section.details.assign(experiment=name, table=section.title)
            for name, section in self.sections()
            if len(section.details)
        ]
        return pd.concat(frames)[names] if frames else pd.DataFrame(columns=names)


def build(folder: Path, only: str | None = None) -> ResultsReport:
    """Read a results folder.

    Args:
        folder: What `run`, `evaluate --output` or `train --output` wrote; training runs may be anywhere below it.
        only: The name of one experiment; all otherwise.

    Raises:
        BadFile: There is nothing to report.
        BadOption: There is no such experiment.
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
    if only is not None and only not in {plan.name for plan in plans}:
        raise BadOption(f"--only {only!r}: {suggestion(only, [plan.name for plan in plans])}")
    chosen = [plan for plan in plans if only in (None, plan.name)]
    runs = () if only else tuple(training_rows(list(trained.values())))
    return ResultsReport(tuple(chapters(chosen, records)), runs, tuple(corrupt), only or "index")


def write(report: ResultsReport, output: Path) -> list[Path]:
    """Write the page, each experiment as Markdown and LaTeX, all numbers as CSV, and figures as PNG and SVG.

    Raises:
        BadFile: The files cannot be written.
    """
    drawn = {found.name: render(found.draw, ("png", "svg")) for found in report.figures()}
    files: dict[str, str | bytes] = dict(_documents(report, drawn))
    results, details = ("results", "details") if report.name == "index" else (report.name, f"{report.name}-details")
    files |= {f"{results}.csv": _csv(report.numbers()), f"{details}.csv": _csv(report.details())}
    texts = {}
    for chapter in report.chapters:
        files[f"{chapter.plan.name}.tex"] = documents.render("tables.tex.j2", **vars(chapter))
        texts[chapter.plan.name] = _markdown(chapter, drawn, page=True)
    if report.training:
        texts["training"] = str(files["training.md"])
    images = {name: formats["png"] for name, formats in drawn.items()}
    files[f"{report.name}.html"] = documents.page(texts, images, report=report)
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


def as_json(report: ResultsReport, files: Collection[Path]) -> dict[str, Any]:
    """Return the report for programs."""
    return {
        "files": [str(path) for path in files],
        "corrupt": list(report.corrupt),
        "experiments": {
            chapter.plan.name: {
                "title": chapter.plan.title,
                "tables": [
                    {
                        "title": section.title,
                        "problem": section.view.problem or None,
                        "numbers": [{name: getattr(found, name) for name in _NUMBER} for found in section.view.numbers],
                        "notes": list(section.caveats),
                    }
                    for section in chapter.sections
                ],
            }
            for chapter in report.chapters
        },
        "training": [{"setting": row.setting, "recipe": row.recipe, "validation": row.validation(),
                      "targets": row.targets(), "minutes": row.minutes()} for row in report.training],
    }  # fmt: skip


def _documents(report: ResultsReport, figures: Collection[str]) -> dict[str, str]:
    """Return the Markdown files; links go to the given figures only."""
    files = {f"{chapter.plan.name}.md": _markdown(chapter, figures) for chapter in report.chapters}
    if report.name == "index":
        files["index.md"] = documents.render("index.md.j2", report=report)
    if report.training:
        files["training.md"] = documents.render("training.md.j2", tables=training_tables(report.training))
    return files


def _markdown(chapter: Chapter, figures: Collection[str], *, page: bool = False) -> str:
    return documents.render("experiment.md.j2", **vars(chapter), figures=figures, page=page)


def _csv(frame: pd.DataFrame) -> str:
    return str(frame.to_csv(index=False, lineterminator="\n"))


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
