"""The finished batches of a table that is not complete yet, in one SQLite file beside it."""

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import astuple
from pathlib import Path

from domainadaptor.errors import BadFile
from domainadaptor.lab.prediction import FilePrediction, PredictedBatch

_SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT);
CREATE TABLE IF NOT EXISTS batches (number INTEGER PRIMARY KEY, compared TEXT, note TEXT);
CREATE TABLE IF NOT EXISTS states (stream INTEGER PRIMARY KEY, state BLOB);
CREATE TABLE IF NOT EXISTS rows (position INTEGER PRIMARY KEY, file TEXT, source_prediction TEXT,
  source_confidence REAL, adapted_prediction TEXT, adapted_confidence REAL, skipped TEXT);
"""


class PartialTable:
    """The rows of finished batches; a batch is there as a whole or not at all. Iterating yields rows in file order."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def add(self, batches: Mapping[int, PredictedBatch], stream: int = 0, state: bytes | None = None) -> None:
        """Add finished batches by number, with what their stream has learned; those that are there stay as they are."""
        with self._db:
            for number, batch in batches.items():
                self._add_rows(batch.rows)
                values = number, json.dumps(batch.compared), batch.note
                self._db.execute("INSERT OR IGNORE INTO batches VALUES (?, ?, ?)", values)
            if state is not None:
                self._db.execute("INSERT OR REPLACE INTO states VALUES (?, ?)", (stream, state))

    def add_checked(self, rows: Mapping[int, FilePrediction]) -> None:
        """Add the files that are no images; this is done once for all files."""
        with self._db:
            self._add_rows(rows)
            self._db.execute("INSERT INTO facts VALUES ('checked', ?)", (json.dumps(list(rows)),))

    def checked(self) -> set[int] | None:
        """Return the positions of the files that are no images; None if they are not known yet."""
        found = self._db.execute("SELECT value FROM facts WHERE name = 'checked'").fetchone()
        return None if found is None else set(json.loads(found[0]))

    def finished(self) -> set[int]:
        """Return the numbers of all batches that are there."""
        return {number for (number,) in self._db.execute("SELECT number FROM batches")}

    def state(self, stream: int) -> bytes | None:
        """Return what a stream has learned from its finished batches."""
        found = self._db.execute("SELECT state FROM states WHERE stream = ?", (stream,)).fetchone()
        return None if found is None else found[0]

    def batches(self) -> Iterator[PredictedBatch]:
        """Yield what batches say besides their rows, in order."""
        for compared, note in self._db.execute("SELECT compared, note FROM batches ORDER BY number"):
            yield PredictedBatch({}, json.loads(compared), note)

    def _add_rows(self, rows: Mapping[int, FilePrediction]) -> None:
        values = [(at, *astuple(row)) for at, row in rows.items()]
        self._db.executemany("INSERT OR IGNORE INTO rows VALUES (?, ?, ?, ?, ?, ?, ?)", values)

    def __len__(self) -> int:
        return int(self._db.execute("SELECT count(*) FROM rows").fetchone()[0])

    def __iter__(self) -> Iterator[FilePrediction]:
        for _, *row in self._db.execute("SELECT * FROM rows ORDER BY position"):
            yield FilePrediction(*row)

    def __contains__(self, row: object) -> bool:
        return any(row == own for own in self)


def partial_files(output: Path) -> Sequence[Path]:
    """Return the files beside a table in which SQLite keeps its finished batches."""
    first = output.with_name(f".{output.name}.partial")
    return [first, first.with_name(f"{first.name}-wal"), first.with_name(f"{first.name}-journal")]


@contextmanager
def partial_table(output: Path, task: str) -> Iterator[PartialTable]:
    """Open the finished batches of a table; without an error in the context, they are deleted at its end.

    Args:
        output: The table.
        task: A digest of everything that the rows depend on.

    Raises:
        BadFile: They belong to another task, another process uses them, or another user could have changed them.
    """
    path, *_ = files = partial_files(output)
    if path.exists() and hasattr(os, "getuid") and (path.stat().st_uid != os.getuid() or path.stat().st_mode & 0o22):
        raise BadFile(f"{str(path)!r} can be changed by other users, so it is not read; delete it to start over")
    try:
        path.touch(mode=0o600)
        with closing(sqlite3.connect(path, timeout=0)) as db:
            for statement in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = NORMAL"):
                db.execute(f"PRAGMA {statement}")
            db.executescript(_SCHEMA)
            with db:
                db.execute("INSERT OR IGNORE INTO facts VALUES ('task', ?)", (task,))
            if db.execute("SELECT value FROM facts WHERE name = 'task'").fetchone()[0] != task:
                raise BadFile(
                    f"{str(path)!r} has finished batches of other images, another network or other options than these: "
                    "repeat the command that began it, choose another --output, or delete it to start over"
                )
            yield PartialTable(db)
    except sqlite3.DatabaseError as error:
        if "locked" in str(error):
            raise BadFile(f"Another process writes {str(output)!r}; wait for it, or choose another --output") from error
        raise BadFile(f"Cannot use {str(path)!r} ({error}); delete it to start over") from error
    except OSError as error:
        raise BadFile(f"Cannot write {str(path)!r}: {error.strerror or error}; choose another --output") from error
    for file in files:
        file.unlink(missing_ok=True)
