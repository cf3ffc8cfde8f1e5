"""The layout of an experiment: which records make which cell of which table."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_TAKEN = ("index", "training")  # files of the report itself


@dataclass(frozen=True)
class Wanted:
    """A record that a cell needs, and the command that makes it."""

    id: str  # "" where it cannot be known before a network was trained
    command: str
    missing: str = ""  # why it could not run, when the plan was made


Seed = tuple[Wanted, ...]  # the records that one seed's value is the mean of; mostly one


@dataclass(frozen=True)
class PaperColumns:
    """Where the paper's numbers of a table are found."""

    table: str
    backbone: str
    columns: Mapping[str, str]  # ours -> the paper's, where they differ


@dataclass(frozen=True)
class PaperCell:
    """A row of ours that is one number of the paper's: the mean stands beside it, or all columns of a sweep."""

    row: str
    column: str


PaperRow = str | PaperCell


@dataclass(frozen=True)
class RowPlan:
    """One line of a table."""

    label: str
    group: str
    paper: PaperRow | None  # what the paper's data call it
    value: str  # "after", "before" the step, or of the untouched "source"
    cells: Mapping[str, tuple[Seed, ...]]


@dataclass(frozen=True)
class TablePlan:
    """One table or figure."""

    title: str
    sample: str
    show: str
    corner: str
    columns: tuple[str, ...]
    mean: bool
    paper: PaperColumns | None
    rows: tuple[RowPlan, ...]

    def runs(self) -> list[Wanted]:
        """The records of all cells, each once; those that have no id yet are one each."""
        wanted = [w for row in self.rows for seeds in row.cells.values() for seed in seeds for w in seed]
        known = {w.id: w for w in wanted if w.id}
        return [*known.values(), *(w for w in wanted if not w.id)]


@dataclass(frozen=True)
class Plan:
    """One experiment."""

    name: str
    title: str
    about: str
    file: str
    command: str
    remarks: tuple[str, ...]
    tables: tuple[TablePlan, ...]


def as_number(column: str) -> float | None:
    """The number that a column is called by, if it is one."""
    try:
        value = float(column)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def read_plan(content: Mapping[str, Any]) -> Plan:
    """The plan in a JSON object.

    Raises:
        ValueError: A part is missing or of another kind.
    """
    name = _text(content, "name")
    if not re.fullmatch(r"[\w-][\w.-]*", name) or name in _TAKEN:
        raise ValueError(f"the name {name!r} cannot be a file's: expected letters, digits, hyphens; not {_TAKEN}")
    remarks = content.get("remarks") or []
    if not isinstance(remarks, list) or not all(isinstance(remark, str) for remark in remarks):
        raise ValueError("remarks: expected a list of sentences")
    command = _text(content, "command", "")
    return Plan(
        name,
        _text(content, "title", name),
        _text(content, "about", ""),
        _text(content, "file", ""),
        command,
        tuple(remarks),
        tuple(_table(table, command) for table in _objects(content, "tables")),
    )


def _table(table: Mapping[str, Any], command: str) -> TablePlan:
    columns = table.get("columns")
    if not isinstance(columns, list) or not all(isinstance(column, str | int | float) for column in columns):
        raise ValueError("columns: expected a list of names")
    value = _text(table, "value", "after")
    return TablePlan(
        _text(table, "title"),
        _text(table, "sample", ""),
        _text(table, "show", "accuracy"),
        _text(table, "corner", ""),
        tuple(map(str, columns)),
        bool(table.get("mean", False)),
        _paper(table.get("paper")),
        tuple(_row(row, value, command) for row in _objects(table, "rows")),
    )


def _paper(paper: Any) -> PaperColumns | None:
    if paper is None:
        return None
    if not isinstance(paper, dict) or not isinstance(paper.get("columns") or {}, dict):
        raise ValueError("paper: expected null, or table, backbone and columns")
    columns = {str(ours): str(theirs) for ours, theirs in (paper.get("columns") or {}).items()}
    return PaperColumns(_text(paper, "table"), _text(paper, "backbone", ""), columns)


def _row(row: Mapping[str, Any], value: str, command: str) -> RowPlan:
    cells, commands, missing = (row.get(key) or {} for key in ("cells", "commands", "missing"))
    if not all(isinstance(part, dict) for part in (cells, commands, missing)):
        raise ValueError("cells, commands, missing: expected objects with a list a column")
    chosen = _text(row, "value", value)
    if chosen not in ("after", "before", "source"):
        raise ValueError(f"value: expected after, before or source, got {chosen!r}")
    return RowPlan(
        _text(row, "label"),
        _text(row, "group", ""),
        _paper_row(row.get("paper")),
        chosen,
        {str(column): _seeds(ids, commands.get(column), missing.get(column), command) for column, ids in cells.items()},
    )


def _paper_row(paper: Any) -> PaperRow | None:
    if isinstance(paper, dict):
        return PaperCell(_text(paper, "method"), _text(paper, "column"))
    return None if paper is None else str(paper)


def _seeds(ids: Any, commands: Any, missing: Any, otherwise: str) -> tuple[Seed, ...]:
    """Records, commands and reasons, which have the same nesting; but for records it may also be one flat list."""
    if not isinstance(ids, list):
        raise ValueError("cells: expected a list of records a column")
    entries = [entry if isinstance(entry, list) else [entry] for entry in ids]
    # A cell whose data or network are not there has no id yet.
    if not all(isinstance(name, str | None) for entry in entries for name in entry):
        raise ValueError("cells: expected the ids of records, or lists of them")
    count = sum(map(len, entries))
    given, reasons = (
        iter(flat if len(flat) == count else [])
        for flat in ([text for text in _flat(texts) if isinstance(text, str)] for texts in (commands, missing))
    )
    return tuple(
        tuple(Wanted(name or "", next(given, "") or otherwise, next(reasons, "")) for name in entry)
        for entry in entries
    )


def _flat(commands: Any) -> list[Any]:
    if not isinstance(commands, list):
        return []
    return [text for entry in commands for text in (entry if isinstance(entry, list) else [entry])]


def _objects(parent: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    value = parent.get(name)
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise ValueError(f"{name}: expected a list of objects")
    return value


def _text(parent: Mapping[str, Any], name: str, otherwise: str | None = None) -> str:
    value = parent.get(name)
    value = otherwise if value is None else value
    if not isinstance(value, str):
        raise ValueError(f"{name}: expected a text")
    return value
