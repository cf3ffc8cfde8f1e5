"""The numbers that the paper prints, for tables to stand beside ours."""

import csv
import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from domainadaptor.lab.reports.plans import PaperCell, PaperColumns, PaperRow, as_number

ACCURACY, MILLISECONDS, DISTANCE, VARIANCE = "accuracy_percent", "milliseconds", "distance", "variance"


class PaperValue(NamedTuple):
    """One printed number."""

    value: float
    deviation: float | None


def paper_value(
    place: PaperColumns | None, row: PaperRow | None, column: str, unit: str = ACCURACY
) -> PaperValue | None:
    """The paper's number for one of our cells, if it has one; names may differ in case, blanks and hyphens."""
    if place is None or row is None:
        return None
    wanted = place.columns.get(column)
    if isinstance(row, PaperCell):
        if column != "mean" and as_number(column) is None:  # in a sweep it is the same in every column
            return None
        wanted, row = row.column, row.row
    # A mean that the plan does not place is the paper's own average.
    names = [wanted] if wanted is not None else [column, "Avg"] if column == "mean" else [column]
    for name in names:
        found = _numbers().get((place.table, _backbone(place.backbone), _fold(row), _fold(name), unit))
        if found:
            return found
    return None


def place_in_paper(table: str | None) -> int:
    """Where a table stands in the paper's data; what it does not have comes after all of them."""
    order = list(dict.fromkeys(name for name, *_ in _numbers()))
    return order.index(table) if table in order else len(order)


def is_in_paper(place: PaperColumns) -> bool:
    """Whether the paper has numbers of that table and backbone."""
    return any(key[:2] == (place.table, _backbone(place.backbone)) for key in _numbers())


@cache
def _numbers() -> dict[tuple[str, str, str, str, str], PaperValue]:
    text = files("domainadaptor.lab.reports").joinpath("paper.csv").read_text(encoding="utf-8")
    found: dict[tuple[str, str, str, str, str], PaperValue] = {}
    for line in csv.DictReader(text.splitlines()):
        unit = MILLISECONDS if line["unit"].startswith(MILLISECONDS) else line["unit"]
        key = (line["table"], _backbone(line["backbone"]), _fold(line["method"]), _fold(line["column"]), unit)
        found[key] = PaperValue(float(line["value"]), float(line["std"]) if line["std"] else None)
    return found


def _backbone(name: str) -> str:
    return _fold(name.partition(" (")[0])  # one of them is "(inferred)"


def _fold(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name.casefold())
