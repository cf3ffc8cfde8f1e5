"""An experiment in chapters and sections, each with everything that is said of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from domainadaptor.lab.reports.caveats import remarks
from domainadaptor.lab.reports.cells import Gap
from domainadaptor.lab.reports.error_analysis import (
    NO_IMAGES,
    ImageReader,
    best_row,
    changed_figure,
    confusion_figure,
    has_examples,
)
from domainadaptor.lab.reports.plans import Plan
from domainadaptor.lab.reports.provenance import Origin, origin
from domainadaptor.lab.reports.records import Results
from domainadaptor.lab.reports.views import ask_for, show
from domainadaptor.lab.reports.views.details import details_by_domain
from domainadaptor.lab.reports.views.shown import Ask, Figure, Shown

_MOST_GAPS = 12  # that are listed, until the rest is a number
_TRAINS = "domainadaptor train"
_LOOKED_AT = ("accuracy", "details", "segments")


@dataclass(frozen=True)
class Section:
    """One table of an experiment."""

    name: str
    title: str
    sample: str
    shown: Shown
    figures: tuple[Figure, ...]
    remarks: tuple[str, ...]
    origin: Origin
    details: tuple[Mapping[str, str | float], ...] = ()  # a line for each row, column and domain
    note: str = ""  # why something is not to be seen here


@dataclass(frozen=True)
class Chapter:
    """One experiment."""

    plan: Plan
    sections: tuple[Section, ...]


def chapters(results: Results, read: ImageReader | None) -> Iterator[Chapter]:
    """The experiments of a folder; the same rows are looked at closer only once."""
    looked: set[frozenset[str]] = set()
    said = ""
    for plan in results.plans:
        sections = []
        closer = False
        for number, table in enumerate(plan.tables):
            ask = ask_for(table, plan.name if number == 0 else f"{plan.name}-table-{number + 1}", results)
            figures: tuple[Figure, ...] = ()
            note = ""
            if not closer and table.show in _LOOKED_AT:
                figures, lacking = _closer(ask, read, looked)
                closer = bool(figures)
                note, said = ("" if said else lacking), said or lacking  # once is enough
            sections.append(_section(ask, figures, note))
        yield Chapter(plan, tuple(sections))


def gap_lines(gaps: Sequence[Gap], command: str) -> Iterator[tuple[str, list[tuple[str, list[str]]]]]:
    """Headings, and below each the cells that failed or were not run, with the commands that would fill them."""
    for heading, own in (
        ("Failed cells, their reasons, and the commands that try again", [gap for gap in gaps if gap.failed]),
        ("Missing cells, and the commands that fill them", [gap for gap in gaps if not gap.failed]),
    ):
        cells: dict[str, dict[str, None]] = {}
        for gap in own:
            said = f"{gap.row}, {gap.column}" + (f": {gap.reason}" if gap.reason else "")
            cells.setdefault(said, {})[gap.command] = None
        said_before: set[str] = set()
        lines = []
        for said, commands in cells.items():
            lines.append((said, [todo for todo in commands if todo and todo not in said_before]))
            said_before.update(commands)
        more = len(lines) - _MOST_GAPS
        if more > 0:
            rest = f"and {more} more, which the CSV file lists; all of them at once"
            lines = [*lines[:_MOST_GAPS], (rest, [f"{command} --missing", command])]
        elif any(todo.startswith(_TRAINS) for todo in said_before):
            lines.append(("with these networks, all of them", [command]))
        if lines:
            yield heading, lines


def _section(ask: Ask, closer: tuple[Figure, ...], note: str) -> Section:
    shown = show(ask)
    return Section(
        ask.name,
        ask.table.title,
        ask.table.sample,
        shown,
        (*shown.figures, *closer),
        () if shown.problem else tuple(remarks(ask)),
        origin(ask),
        () if shown.problem else tuple(details_by_domain(ask)),
        note,
    )


def _closer(ask: Ask, read: ImageReader | None, looked: set[frozenset[str]]) -> tuple[tuple[Figure, ...], str]:
    row = best_row(ask)
    if row is None:
        return (), ""
    ids = frozenset(record["id"] for record in ask.records(row))
    if ids in looked:
        return (), ""
    looked.add(ids)
    changed = changed_figure(ask, row, read) if read else None
    found = (changed, confusion_figure(ask, row))
    note = NO_IMAGES if changed is None and has_examples(ask, row) else ""
    return tuple(figure for figure in found if figure), note
