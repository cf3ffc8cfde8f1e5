"""Of which kind each value of a TOML file has to be; all that are not are named, in words for whoever wrote it."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from domainadaptor.options import suggestion

_MOST = 2**63 - 1  # seeds of PyTorch


def _whole(value: Any, low: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= _MOST


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _list(value: Any, each: Callable[[Any], bool], apart: bool) -> bool:
    return isinstance(value, list) and all(map(each, value)) and not (apart and len(set(value)) < len(value))


def _is_plain(value: Any) -> bool:
    """Whether a record can hold it: dates and what is no finite number cannot be written as JSON."""
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    return isinstance(value, str | bool) or _number(value)


TEXT = "a text"
FLAG = "true or false"
NUMBER = "a number"
COUNT = "a whole number, 1 or more"
SEED = "a whole number, 0 or more"
SEEDS = "a list of different whole numbers, 0 or more"
NAMES = "a list of different names"
SENTENCES = "a list of texts"
TABLE = "a table"
TABLES = "tables, each under [[table]]"
PLAIN = "a text, a finite number, true or false, or a list of them"
PAPER = "a text, or {method = NAME, column = NAME}"
PAPER_TABLE = "{table = NAME, backbone = NAME, columns = {OURS = THEIRS}}"
GROUPS = "a table of lists of different names, as {both = ['a', 'b']}"
OPTIONS = "a table of texts, finite numbers, true or false, or lists of them"

_FITS: dict[str, Callable[[Any], bool]] = {
    TEXT: lambda value: isinstance(value, str),
    FLAG: lambda value: isinstance(value, bool),
    NUMBER: _number,
    COUNT: lambda value: _whole(value, 1),
    SEED: lambda value: _whole(value, 0),
    SEEDS: lambda value: _list(value, lambda seed: _whole(seed, 0), apart=True) and len(value) > 0,
    NAMES: lambda value: _list(value, lambda name: isinstance(name, str), apart=True) and len(value) > 0,
    SENTENCES: lambda value: _list(value, lambda text: isinstance(text, str), apart=False),
    TABLE: lambda value: isinstance(value, dict),
    TABLES: lambda value: _list(value, lambda entry: isinstance(entry, dict), apart=False) and len(value) > 0,
    PLAIN: _is_plain,
    PAPER: lambda value: isinstance(value, str) or (_texts(value) and set(value) == {"method", "column"}),
    PAPER_TABLE: lambda value: (
        isinstance(value, dict)
        and set(value) <= {"table", "backbone", "columns"}
        and isinstance(value.get("table"), str)
        and isinstance(value.get("backbone", ""), str)
        and _texts(value.get("columns", {}))
    ),
    GROUPS: lambda value: isinstance(value, dict) and all(_FITS[NAMES](names) for names in value.values()),
    OPTIONS: lambda value: isinstance(value, dict) and _is_plain(value),
}


def _texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def fits(value: Any, kind: str) -> bool:
    """Whether a value is of that kind."""
    return _FITS[kind](value)


def wrong_kinds(entry: Mapping[str, Any], kinds: Mapping[str, str]) -> list[str]:
    """A sentence for each name that is not known, and for each value that is not of its kind."""
    found = []
    for name, value in entry.items():
        if name not in kinds:
            found.append(f"{name!r} is not known; {suggestion(name, sorted(kinds))}")
        elif not fits(value, kinds[name]):
            found.append(f"{name} = {value!r}: expected {kinds[name]}")
    return found
