"""A table as it is printed, before anybody decides on a format."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal

from domainadaptor.lab.reports.cells import Spread
from domainadaptor.lab.reports.paper import PaperValue


@dataclass(frozen=True)
class Entry:
    """What stands in one cell."""

    text: str = ""
    bold: bool = False
    muted: bool = False
    hint: str = ""  # the reason, where the text is only a mark


@dataclass(frozen=True)
class Line:
    """One line of a table."""

    label: str
    entries: tuple[Entry, ...]
    group: str = ""
    muted: bool = False  # it belongs to the line above


@dataclass(frozen=True)
class Grid:
    """A whole table."""

    corner: str
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    caption: str = ""
    paper_columns: tuple[int, ...] = ()  # which of the columns are the paper's, or differences from it


@dataclass(frozen=True)
class Fact:
    """A number for programs: one line of the CSV file."""

    row: str
    column: str
    what: str
    value: float | None
    deviation: float | None = None
    seeds: int = 0
    group: str = ""
    paper: float | None = None
    paper_deviation: float | None = None
    state: str = "done"  # done, partial, missing, failed
    reason: str = ""
    command: str = ""

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.value is None or self.paper is None else self.value - self.paper


def number(value: float | None, digits: int = 1) -> str:
    """A number, or nothing."""
    if value is None:
        return ""
    # A float's shortest decimal form is what was meant: 80.85 becomes 80.9, not 80.8.
    text = f"{Decimal(repr(float(value))).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "−")


def with_deviation(found: Spread | PaperValue | None, digits: int = 1) -> str:
    """Mean ± deviation."""
    if found is None:
        return ""
    mean = found.mean if isinstance(found, Spread) else found.value
    return number(mean, digits) + ("" if found.deviation is None else f" ± {number(found.deviation, digits)}")


def signed(value: float | None, digits: int = 1) -> str:
    """A difference, with its sign."""
    text = number(value, digits)
    return f"+{text}" if value is not None and value > 0 and float(text) != 0 else text


def embolden(lines: Sequence[Line], column: int, values: Sequence[float | None], lowest: bool = False) -> list[Line]:
    """The lines with the best value of a column in bold; as printed, so that equal numbers look equal."""
    there = [value for value in values if value is not None]
    if len(there) < 2:
        return list(lines)
    best = min(there) if lowest else max(there)
    texts = {lines[at].entries[column].text.partition(" ±")[0] for at, value in enumerate(values) if value == best}
    return [
        _bold(line, column) if value is not None and line.entries[column].text.partition(" ±")[0] in texts else line
        for line, value in zip(lines, values, strict=True)
    ]


def _bold(line: Line, column: int) -> Line:
    entries = list(line.entries)
    entries[column] = replace(entries[column], bold=True)
    return replace(line, entries=tuple(entries))
