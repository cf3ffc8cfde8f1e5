"""Records and plans read from disk and checked; what is damaged is named, and does not stop the rest."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from domainadaptor.errors import BadFile
from domainadaptor.lab.reports.paper import place_in_paper
from domainadaptor.lab.reports.plans import Plan, read_plan
from domainadaptor.lab.reports.shape import check_record

FORMAT = 1

Record = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Results:
    """Everything that `run` left in a folder."""

    plans: tuple[Plan, ...]
    records: Mapping[str, Record]  # by id
    damaged: Mapping[str, str]  # file, from the folder on -> what is wrong with it


def read_results(folder: Path) -> Results:
    """The plans and records of a folder.

    Raises:
        BadFile: There is no such folder.
    """
    if not folder.is_dir():
        raise BadFile(f"no folder at {str(folder)!r}: expected what `domainadaptor run` writes, plans/ and records/")
    damaged: dict[str, str] = {}
    plans = _read_all(folder / "plans", _plan, damaged)
    records = _read_all(folder / "records", _record, damaged)
    return Results(tuple(sorted(plans.values(), key=_place)), records, damaged)


def read_json(path: Path) -> Any:
    """The content of a JSON file.

    Raises:
        ValueError: It cannot be read, in words for a list of damaged files.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ValueError("it is no text in UTF-8") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no JSON: {error.msg} in line {error.lineno}") from error
    except RecursionError as error:
        raise ValueError("it is no JSON that anybody wrote: nested too deeply") from error


def checksum(record: Mapping[str, Any]) -> str:
    """The sum of everything in a record but the sum itself."""
    rest = {name: value for name, value in record.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _place(plan: Plan) -> tuple[int, str]:
    """As in the paper, then by name."""
    return min((place_in_paper(table.paper.table) for table in plan.tables if table.paper), default=999), plan.name


def _read_all(folder: Path, read: Callable[[Path, Any], T], damaged: dict[str, str]) -> dict[str, T]:
    found: dict[str, T] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            found[path.stem] = read(path, read_json(path))
        except ValueError as error:
            damaged[f"{folder.name}/{path.name}"] = str(error)
    return found


def _plan(path: Path, content: Any) -> Plan:
    _check_head(path, content, ("plan",), "name")
    return read_plan(content)


def _record(path: Path, content: Any) -> Record:
    _check_head(path, content, ("evaluation", "measurement"), "id")
    if content.get("checksum") != checksum(content):
        raise ValueError("its checksum does not fit its content: it was edited, or not written to the end")
    check_record(content)
    return dict(content)


def _check_head(path: Path, content: Any, kinds: tuple[str, ...], called: str) -> None:
    if not isinstance(content, dict):
        raise ValueError(f"expected an object, got {type(content).__name__}")
    if content.get("kind") not in kinds:
        raise ValueError(f"expected the kind {' or '.join(kinds)}, got {content.get('kind')!r}")
    if content.get("format") != FORMAT:
        raise ValueError(f"expected format {FORMAT}, got {content.get('format')!r}; another version wrote it")
    if content.get(called) != path.stem:
        raise ValueError(f"its {called} is {content.get(called)!r}, and its file is called {path.name!r}")


def _no_number(word: str) -> float:
    raise ValueError(f"it has {word} where a number was expected")
