"""Records on disk: each written whole or not at all, with a sum that tells when one was damaged."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from domainadaptor.errors import BadFile
from domainadaptor.lab.files import locked, replacing

FORMAT = 1


class Store:
    """The folder of an experiment's records and plans; several processes may share it."""

    def __init__(self, folder: Path, damaged: Callable[[str, str], None] = lambda *_: None) -> None:
        """Makes the folder.

        Args:
            folder: Where.
            damaged: Is told of each record that was damaged: its file, and what is wrong.

        Raises:
            BadFile: It cannot be made.
        """
        self.folder = folder
        self._say_damaged = damaged
        self._records, self._plans, self._locks = folder / "records", folder / "plans", folder / ".locks"
        self._data = folder / "data"
        try:
            for part in (self._records, self._plans, self._locks, self._data):
                part.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadFile(
                f"cannot make the folder {str(folder)!r}: {error.strerror or error}; choose another --output"
            ) from error

    def read(self, name: str) -> dict[str, Any] | None:
        """The record of that id, if there is a whole one; a damaged one is put aside, so that it is made again."""
        path = self._records / f"{name}.json"
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:  # nobody knows whether it is damaged
            raise BadFile(
                f"cannot read {str(path)!r}: {error.strerror or error}; move it away, or let it be read"
            ) from error
        try:
            record = checked_record(content)
            if record["id"] != name:
                raise ValueError(f"it is the record of {record['id']!r}")
            return record
        except (ValueError, RecursionError) as error:
            aside = self._aside(path)
            self._say_damaged(path.name, f"{error}; it was put aside as {aside.name}")
            return None

    def _aside(self, path: Path) -> Path:
        """Another name for a damaged record, which overwrites none of an earlier one."""
        aside = path.with_suffix(".json.damaged")
        number = 1
        while aside.exists():
            number += 1
            aside = path.with_suffix(f".json.damaged-{number}")
        try:
            path.replace(aside)
        except FileNotFoundError:  # another process was faster
            pass
        except OSError as error:
            raise BadFile(f"{str(path)!r} is damaged and cannot be put aside: {error.strerror or error}") from error
        return aside

    def peek(self, name: str) -> dict[str, Any] | None:
        """The record of that id, if there is a whole one that did not fail; one that is not stays where it is."""
        try:
            record = checked_record((self._records / f"{name}.json").read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        return record if record["id"] == name and "failed" not in record else None

    def write(self, record: Mapping[str, Any]) -> None:
        """Writes a record under its id, with its sum.

        Raises:
            BadFile: It cannot be written there.
        """
        whole = {**record, "checksum": _sum(record)}
        with replacing(self._records / f"{record['id']}.json") as beside:
            beside.write_text(json.dumps(whole, indent=None, allow_nan=False) + "\n", encoding="utf-8")

    def write_plan(self, plan: Mapping[str, Any]) -> None:
        """Writes the layout of an experiment under its name.

        Raises:
            BadFile: It cannot be written there.
        """
        with replacing(self._plans / f"{plan['name']}.json") as beside:
            beside.write_text(json.dumps(plan, indent=1) + "\n", encoding="utf-8")

    def write_manifest(self, fingerprint: str, make: Callable[[], Mapping[str, Any]]) -> None:
        """Writes what a data set holds under its fingerprint, which records have, unless it is there.

        Raises:
            BadFile: It cannot be written there.
        """
        path = self._data / f"{fingerprint}.json"
        if not path.exists():
            with replacing(path) as beside:
                beside.write_text(json.dumps(make(), indent=1) + "\n", encoding="utf-8")

    def read_plan(self, name: str) -> dict[str, Any]:
        """The layout that was written under a name; empty where there is none that can be read."""
        try:
            plan = json.loads((self._plans / f"{name}.json").read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return plan if isinstance(plan, dict) and plan.get("format") == FORMAT else {}

    @contextmanager
    def claim(self, name: str) -> Iterator[bool]:
        """Whether the cell is this process's own, while the context lasts; a killed process lets go of its cells."""
        with locked(self._locks / name) as own:
            yield own


def checked_record(content: bytes) -> dict[str, Any]:
    """A record from its file's content.

    Raises:
        ValueError: It is damaged, or of another format.
    """
    record = json.loads(content)
    if not isinstance(record, dict) or "id" not in record:
        raise ValueError("it is no record")
    if record.get("format") != FORMAT:
        raise ValueError(f"expected a record of format {FORMAT}, got {record.get('format')!r}")
    if record.pop("checksum", None) != _sum(record):
        raise ValueError("its sum does not fit its content")
    return record


def _sum(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
