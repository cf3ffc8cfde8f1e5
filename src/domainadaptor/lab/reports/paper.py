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
    wanted = place.columns.get(column)
    if isinstance(row, PaperNumber):
        if column != "mean" and as_number(column) is None:  # in a sweep it is the same in every column
            return None
        wanted, row = row.column, row.method
    # A mean without a column given is the paper's own average.
    names = [wanted] if wanted is not None else [column, "Avg"] if column == "mean" else [column]
    found = (_numbers().get((place.table, _backbone(place.backbone), _fold(row), _fold(name), unit)) for name in names)
    return next((value for value in found if value), None)


def place_in_paper(table: str) -> int:
    """Return the position of a table in the paper; tables that it does not have come last."""
    order = list(dict.fromkeys(name for name, *_ in _numbers()))
    return order.index(table) if table in order else len(order)


def is_in_paper(place: PaperNumbers) -> bool:
    """Return whether the paper has numbers for that table and backbone."""
    return any(key[:2] == (place.table, _backbone(place.backbone)) for key in _numbers())


@cache
def _numbers() -> dict[tuple[str, str, str, str, str], Estimate]:
    text = files("domainadaptor.lab.reports").joinpath("paper.csv").read_text(encoding="utf-8")
    found: dict[tuple[str, str, str, str, str], Estimate] = {}
    for line in csv.DictReader(text.splitlines()):
        unit = MILLISECONDS if line["unit"].startswith(MILLISECONDS) else line["unit"]
        key = (line["table"], _backbone(line["backbone"]), _fold(line["method"]), _fold(line["column"]), unit)
        found[key] = Estimate(float(line["value"]), float(line["std"]) if line["std"] else None)
    return found


def _backbone(name: str) -> str:
    return _fold(name.partition(" (")[0])  # one of them is "(inferred)"


def _fold(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name.casefold())
