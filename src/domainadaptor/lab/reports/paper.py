"""The numbers that the paper prints, to be shown next to ours."""

import csv
import re
from functools import cache
from importlib.resources import files

from domainadaptor.lab.records.plans import PaperNumber, PaperNumbers
from domainadaptor.lab.reports.numbers import Estimate, as_number

ACCURACY, MILLISECONDS, DISTANCE, VARIANCE = "accuracy_percent", "milliseconds", "distance", "variance"


def paper_value(
    place: PaperNumbers | None, row: str | PaperNumber | None, column: str, unit: str = ACCURACY
) -> Estimate | None:
    """Return the paper's number for one of our cells, if there is one; case, blanks and hyphens do not matter."""
    if place is None or row is None:
        return None
    # A mean without a column given is the paper's own average.
    names = [place.columns[column]] if column in place.columns else [column, "Avg"] if column == "mean" else [column]
    if isinstance(row, PaperNumber):
        if column != "mean" and as_number(column) is None:  # in a sweep it is the same in every column
            return None
        names, row = [row.column], row.method
    found = (_numbers().get((*_key(place.table, place.backbone, row, name), unit)) for name in names)
    return next((value for value in found if value), None)


def place_in_paper(table: str) -> int:
    """Return the position of a table in the paper; tables that it does not have come last."""
    order = list(dict.fromkeys(name for name, *_ in _numbers()))
    return order.index(table) if table in order else len(order)


def is_in_paper(place: PaperNumbers) -> bool:
    """Return whether the paper has numbers for that table and backbone."""
    return any(key[:2] == _key(place.table, place.backbone)[:2] for key in _numbers())


@cache
def _numbers() -> dict[tuple[str, ...], Estimate]:
    text = files("domainadaptor.lab.reports").joinpath("paper.csv").read_text(encoding="utf-8")
    found = {}
    for table, backbone, method, column, value, std, unit in list(csv.reader(text.splitlines()))[1:]:
        key = (*_key(table, backbone, method, column), MILLISECONDS if unit.startswith(MILLISECONDS) else unit)
        found[key] = Estimate(float(value), float(std) if std else None)
    return found


def _key(table: str, backbone: str, *names: str) -> tuple[str, ...]:
    """Return a table and names as they are compared; a backbone may be followed by "(inferred)"."""
    return table, *(re.sub(r"[\s_-]+", "", name.casefold()) for name in (backbone.partition(" (")[0], *names))
