"""More of each method than its accuracy: what changed, calibration, time, memory."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from domainadaptor.lab.reports.cells import Record
from domainadaptor.lab.reports.counts import accuracy, calibration_error, confusion, memory, milliseconds, ratio, total
from domainadaptor.lab.reports.grid import Entry, Fact, Grid, Line, embolden, number
from domainadaptor.lab.reports.views.shown import Ask, Shown

MEANING = (
    "Untouched: the network itself; before step: what the method said of a batch before it learned from it. Better: "
    "wrong when untouched, right now; worse: the other way round. ECE: expected calibration error, 15 bins, 0 is best. "
    "Milliseconds depend on what else the machine did; times plain are against plain inference at the same time. Fell "
    "back: batches that the untouched network answered."
)
_CAPTION = f"All images of a row and all seeds counted together, in percent. {MEANING}"


class _Column(NamedTuple):
    title: str
    number: Callable[[Sequence[Record]], float | None]
    digits: int
    best: str = "none"


def _share(count: str) -> Callable[[Sequence[Record]], float | None]:
    def share(records: Sequence[Record]) -> float | None:
        images = total(records, "images")
        return 100 * total(records, count) / images if images else None

    return share


_COLUMNS = (
    _Column("images", lambda records: float(total(records, "images")), 0),
    _Column("untouched", lambda records: accuracy(records, "source"), 1),
    _Column("before step", lambda records: accuracy(records, "before"), 1),
    _Column("after", accuracy, 1, "highest"),
    _Column("better", _share("better"), 1),
    _Column("worse", _share("worse"), 1),
    _Column("changed", _share("changed"), 1),
    _Column("ECE untouched", lambda records: calibration_error(records, "source"), 1),
    _Column("ECE after", calibration_error, 1, "lowest"),
    _Column("ms a batch", milliseconds, 1),
    _Column("times plain", ratio, 2),
    _Column("memory, MB", memory, 0),
    _Column("fell back", lambda records: float(sum(record.get("fell_back", 0) for record in records)), 0),
)


def show(ask: Ask) -> Shown:
    """One line a method."""
    return Shown(details_grid(ask), facts=tuple(_facts(ask)), gaps=ask.gaps())


def details_grid(ask: Ask) -> tuple[Grid, ...]:
    """The table; none where there are no records yet."""
    views = [(row, *view) for row in ask.table.rows for view in ask.views(row).items()]
    if not any(records for *_, records in views):
        return ()
    values = [[column.number(records) if records else None for column in _COLUMNS] for *_, records in views]
    lines = [
        Line(
            f"{row.label}, {view}" if view else row.label,
            tuple(Entry(number(value, column.digits)) for value, column in zip(line, _COLUMNS, strict=True)),
            row.group,
        )
        for (row, view, _), line in zip(views, values, strict=True)
    ]
    for at, column in enumerate(_COLUMNS):
        if column.best != "none":
            lines = embolden(lines, at, [line[at] for line in values], column.best == "lowest")
    kept = [at for at in range(len(_COLUMNS)) if any(line[at] is not None for line in values)]
    return (
        Grid(
            ask.table.corner,
            tuple(_COLUMNS[at].title for at in kept),
            tuple(Line(line.label, tuple(line.entries[at] for at in kept), line.group) for line in lines),
            _CAPTION,
        ),
    )


def details_by_domain(ask: Ask) -> list[dict[str, str | float]]:
    """Every number of the table above for each row, column and domain, all seeds together, and for each class."""
    if ask.shelf.kind != "evaluation":
        return []
    found = []
    for row in ask.table.rows:
        for column, cell in ask.cells(row).items():
            for domain in dict.fromkeys(name for record in cell.records for name in record["scores"]):
                own = [_of_domain(record, domain) for record in cell.records if domain in record["scores"]]
                line: dict[str, str | float] = {
                    "group": row.group,
                    "row": row.label,
                    "column": column,
                    "domain": domain,
                }
                line |= {name: round(value, 4) for name, value in numbers_of(own).items()}
                found.append(line | _by_class(own))
    return found


def domain_numbers(records: Sequence[Record], domain: str) -> dict[str, float]:
    """The same for one domain of them."""
    return numbers_of([_of_domain(record, domain) for record in records])


def class_numbers(records: Sequence[Record], domain: str) -> list[tuple[str, int, float, float]]:
    """Of each class that has images: its name, how many, and the percent right, untouched and after."""
    return _class_lines([_of_domain(record, domain) for record in records])


def numbers_of(records: Sequence[Record]) -> dict[str, float]:
    """The numbers of the table above for some records together, by heading; those that are not known are left out."""
    return {column.title: value for column in _COLUMNS if (value := column.number(records)) is not None}


def _of_domain(record: Record, domain: str) -> Record:
    """The record of one domain alone; time and memory are known of all domains of a stream together."""
    alone = {"scores": {domain: record["scores"][domain]}}
    shared: dict[str, Any] = {"seconds": {}, "memory": None, "fell_back": 0} if len(record["scores"]) > 1 else {}
    return {**record, **alone, **shared}


def _class_lines(records: Sequence[Record]) -> list[tuple[str, int, float, float]]:
    before, after = confusion(records, "source"), confusion(records)
    if before is None or after is None:
        return []
    return [
        (name, images, 100 * int(before[at, at]) / images, 100 * int(after[at, at]) / images)
        for at, name in enumerate(records[0].get("classes", ()))
        if (images := int(after[at].sum()))
    ]


def _by_class(records: Sequence[Record]) -> dict[str, str | float]:
    """Percent of the images of each class that were right, untouched and after."""
    lines = _class_lines(records)
    untouched = {f"{name} untouched": round(share, 4) for name, _, share, _ in lines}
    return {**untouched, **{f"{name} after": round(share, 4) for name, *_, share in lines}}


def _facts(ask: Ask) -> list[Fact]:
    facts = []
    for row in ask.table.rows:
        gaps = [gap for cell in ask.cells(row).values() for gap in cell.gaps]
        for view, records in ask.views(row).items():
            state = ("partial" if gaps else "done") if records else "missing"
            facts += [
                Fact(
                    row.label,
                    view or "all",
                    column.title,
                    column.number(records) if records else None,
                    group=row.group,
                    state=state,
                )
                for column in _COLUMNS
            ]
    return facts
