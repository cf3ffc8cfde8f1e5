"""Experiments as chapters and their tables as sections, with everything that is written about them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from domainadaptor.lab.records.measurements import VALUES
from domainadaptor.lab.records.plans import Plan
from domainadaptor.lab.reports.caveats import caveats
from domainadaptor.lab.reports.details import details_by_domain
from domainadaptor.lab.reports.error_analysis import ImageReader, best_row, changed_figure, confusion_figure
from domainadaptor.lab.reports.figures import ReportFigure
from domainadaptor.lab.reports.provenance import TableProvenance, provenance
from domainadaptor.lab.reports.selection import AnyRecord, Gap, TableRecords
from domainadaptor.lab.reports.tables import View
from domainadaptor.options import suggestion
from domainadaptor.registry import table as registered

VIEWS = "domainadaptor.lab.reports.views"
_NO_IMAGES = (
    "The test images are not on this machine, so images whose answer changed are not shown; pass --root FOLDER with "
    "the folder that holds the data to show them."
)
_ANALYZED = ("accuracy", "details", "segments")  # views of tables whose best row is looked at more closely
_MOST_GAPS = 12  # that are listed; the rest is a number


@dataclass(frozen=True)
class Section:
    """One table of an experiment."""

    name: str
    title: str
    sample: str
    view: View
    figures: Sequence[ReportFigure]
    caveats: Sequence[str]
    provenance: TableProvenance
    gaps: Sequence[Gap]
    details: pd.DataFrame
    note: str = ""  # why something is not shown

    def gap_lists(self, command: str) -> Iterator[tuple[str, list[tuple[str, list[str]]]]]:
        """Yield headings, each with cells that failed or were not run, and the commands that would fill them."""
        for heading, failed in (("Failed cells and the commands that run them again", True),
                                ("Missing cells and the commands that fill them", False)):  # fmt: skip
            cells: dict[str, list[str]] = {}
            for gap in self.gaps:
                if bool(gap.failed) is failed:
                    text = f"{gap.row}, {gap.column}" + (f": {gap.reason}" if gap.reason else "")
                    known = [todo for commands in cells.values() for todo in commands]
                    new = [gap.command] if gap.command and gap.command not in known else []
                    cells[text] = cells.get(text, []) + new
            lines = list(cells.items())
            if len(lines) > _MOST_GAPS:
                rest = f"and {len(lines) - _MOST_GAPS} more; list or run all of them with"
                lines = [*lines[:_MOST_GAPS], (rest, [f"{command} --missing", command])]
            elif any(todo.startswith("domainadaptor train") for _, commands in lines for todo in commands):
                lines.append(("then, with these networks", [command]))
            if lines:
                yield heading, lines


@dataclass(frozen=True)
class Chapter:
    """One experiment."""

    plan: Plan
    sections: tuple[Section, ...]

    def gaps(self) -> list[Gap]:
        """Return what is missing in all tables."""
        return [gap for section in self.sections for gap in section.gaps]


def chapters(plans: Sequence[Plan], records: Mapping[str, AnyRecord], read: ImageReader | None) -> Iterator[Chapter]:
    """Yield the chapters of all plans; the best row of a chapter is looked at more closely, but each only once."""
    analyzed: set[frozenset[str]] = set()
    noted = False
    for plan in plans:
        sections: list[Section] = []
        for at, planned in enumerate(plan.tables):
            name = plan.name if at == 0 else f"{plan.name}-table-{at + 1}"
            measured = {found.run.measure for run in planned.runs() if (found := records.get(run.id))}
            kind = planned.show if planned.show in {*VALUES, *measured} else "evaluation"
            table: TableRecords[Any] = TableRecords(planned, name, records, kind)
            figures: list[ReportFigure] = []
            lacking = False
            if planned.show in _ANALYZED and not any(len(own.figures) > len(own.view.figures) for own in sections):
                figures, lacking = _analysis(table, read, analyzed)
            sections.append(_section(table, figures, _NO_IMAGES if lacking and not noted else ""))
            noted = noted or lacking
        yield Chapter(plan, tuple(sections))


def show(table: TableRecords[Any]) -> View:
    """Return the table in the view that its plan names."""
    views = registered(VIEWS)
    name = table.layout.show
    if name not in views and table.kind == name:  # a measurement
        name = "measured-numbers"
    if name not in views:
        return View(problem=f"unknown view {name!r}; {suggestion(name, views)}")
    view: View = views[name](table)
    return view


def _section(table: TableRecords[Any], figures: Sequence[ReportFigure], note: str) -> Section:
    view, plan = show(table), table.layout
    shown = not view.problem
    return Section(
        table.name, plan.title, plan.sample, view, (*view.figures, *figures), caveats(table) if shown else (),
        provenance(table), table.gaps() if shown else (),
        details_by_domain(table) if shown and table.kind == "evaluation" else pd.DataFrame(), note,
    )  # fmt: skip


def _analysis(
    table: TableRecords[Any], read: ImageReader | None, analyzed: set[frozenset[str]]
) -> tuple[list[ReportFigure], bool]:
    row = best_row(table)
    ids = frozenset(record.id for record in table.of_row(row)) if row else frozenset()
    if row is None or ids in analyzed:
        return [], False
    analyzed.add(ids)
    changed, lacking = changed_figure(table, row, read)
    return [figure for figure in (changed, confusion_figure(table, row)) if figure], lacking
