"""What the columns of a table are, where their names are numbers."""

from collections.abc import Iterator, Mapping
from typing import Any

from domainadaptor.lab.reports.plans import as_number
from domainadaptor.lab.reports.views.shown import Ask

_PARTS = ("options", "protocol_options", "data_options")
_PLAIN = ("batch_size", "images")
_WORDS = {"subset": "images in a subset", "threshold": "confidence threshold"}  # where a name says too little


def axis_of(ask: Ask) -> str:
    """The setting whose value is the column's name in all records, in words; empty where there is none.

    A row that is the same in every column, to compare the others with, has no say.
    """
    shared: set[str] | None = None
    for row in ask.table.rows:
        own: set[str] | None = None
        for column, cell in ask.cells(row).items():
            value = as_number(column)
            if value is None:
                continue
            for record in cell.records:
                fits = {name for name, setting in _settings(record["run"]) if setting == value}
                own = fits if own is None else own & fits
        if own:
            shared = own if shared is None else shared & own
    names = sorted(shared or (), key=lambda name: (name not in _PLAIN, name))
    return _WORDS.get(names[0], names[0].replace("_", " ")) if names else ""


def _settings(run: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from ((name, run[name]) for name in _PLAIN if name in run)
    for part in _PARTS:
        yield from run.get(part, {}).items()
    yield "domains_in_a_stream", len(run.get("domains", ()))
