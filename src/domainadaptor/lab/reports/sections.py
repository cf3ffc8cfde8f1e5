"""Experiments as chapters and their tables as sections, with everything that is written about them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from domainadaptor.lab.records.measurements import VALUES
from domainadaptor.lab.records.plans import Plan, PlannedTable
from domainadaptor.lab.reports.caveats import caveats
from domainadaptor.lab.reports.details import details_by_domain
from domainadaptor.lab.reports.provenance import TableProvenance, provenance
from domainadaptor.lab.reports.selection import AnyRecord, Gap, TableRecords
from domainadaptor.lab.reports.tables import View
from domainadaptor.options import suggestion
from domainadaptor.registry import table as registered

VIEWS = "domainadaptor.lab.reports.views"


@dataclass(frozen=True)
class Section:
    """One table of an experiment."""

    name: str
    title: str
    sample: str
    view: View
    caveats: Sequence[str]
    provenance: TableProvenance
    gaps: Sequence[Gap]
    details: Sequence[tuple[str | float, ...]]  # lines of details.csv


@dataclass(frozen=True)
class Chapter:
    """One experiment."""

    plan: Plan
    sections: tuple[Section, ...]

    def gaps(self) -> list[Gap]:
        """Return what is missing in all tables."""
        return [gap for section in self.sections for gap in section.gaps]


def chapters(plans: Sequence[Plan], records: Mapping[str, AnyRecord]) -> Iterator[Chapter]:
    """Yield the chapters of all plans."""
    for plan in plans:
        names = [plan.name, *(f"{plan.name}-table-{number}" for number in range(2, len(plan.tables) + 1))]
        sections = [_section(planned, name, records) for planned, name in zip(plan.tables, names, strict=False)]
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


def _section(plan: PlannedTable, name: str, records: Mapping[str, AnyRecord]) -> Section:
    measured = {found.run.measure for run in plan.runs() if (found := records.get(run.id))}
    kind = plan.show if plan.show in {*VALUES, *measured} else "evaluation"
    table: TableRecords[Any] = TableRecords(plan, name, records, kind)
    view = show(table)
    shown = not view.problem
    return Section(
        name, plan.title, plan.sample, view, caveats(table) if shown else (), provenance(table),
        table.gaps() if shown else (),
        details_by_domain(table) if shown and kind == "evaluation" else (),
    )  # fmt: skip
