"""A results folder: one SQLite file whose rows are records, plans, training records, manifests and claims."""

import gzip
import hashlib
import json
import shutil
import sqlite3
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

import psutil
from pydantic import Field, TypeAdapter, ValidationError

from domainadaptor.errors import BadFile
from domainadaptor.lab.files import digest_of, replacing
from domainadaptor.lab.records.base import summary
from domainadaptor.lab.records.plans import Manifest, Plan
from domainadaptor.lab.records.runs import EvaluationRecord, MeasurementRecord
from domainadaptor.lab.records.training import TrainingRecord

DATABASE, EXPORT = "results.sqlite", "records.jsonl.gz"
_BUSY = 60.0  # seconds to wait for another process's transaction
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS entries (kind TEXT, id TEXT, body TEXT NOT NULL, checksum TEXT NOT NULL, "
    "PRIMARY KEY (kind, id)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS corrupt "
    "(kind TEXT, id TEXT, body TEXT, reason TEXT, found TEXT DEFAULT CURRENT_TIMESTAMP)",
    "CREATE TABLE IF NOT EXISTS imports (digest TEXT PRIMARY KEY) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS claims (id TEXT PRIMARY KEY, pid INTEGER, started REAL) WITHOUT ROWID",
)
_MOST = 200  # times an export may grow when it is decompressed; real ones grow about tenfold
_RUNS = ("evaluation", "measurement")

AnyRun = EvaluationRecord | MeasurementRecord
AnyEntry = AnyRun | Plan | TrainingRecord | Manifest
_ADAPTER: TypeAdapter[AnyEntry] = TypeAdapter(Annotated[AnyEntry, Field(discriminator="kind")])


def parse(body: str | bytes) -> AnyEntry:
    """Return the entry in a JSON object; a ValueError states in one line why there is none."""
    try:
        return _ADAPTER.validate_json(body)
    except ValidationError as error:
        raise ValueError(summary(error)) from error


def build(content: Mapping[str, Any]) -> AnyRun:
    """Return the record of a run from its parts; a ValueError states in one line what is missing or invalid."""
    record = parse(json.dumps(content))
    assert isinstance(record, AnyRun)
    return record


class Store:
    """The entries of a results folder. Processes of one machine may share it; a killed one loses no finished record.

    Methods raise BadFile if the folder or the database cannot be made, read or written.
    """

    def __init__(
        self, folder: Path, corrupt: Callable[[str], None] = lambda _: None, *, readonly: bool = False
    ) -> None:
        """Open the folder's database, or make one from the exported records if there are any.

        Args:
            folder: The folder.
            corrupt: Called with a message for every corrupt entry.
            readonly: Whether nothing is to be written, neither folder nor file.
        """
        self.folder, self._path, self._warn, self._readonly = folder, folder / DATABASE, corrupt, readonly
        with self._errors():
            self._db = self._open()

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    def __enter__(self) -> "Store":
        """Return the store."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def run(self, name: str) -> AnyRun | None:
        """Return the record of a run; None if there is none. A corrupt one is set aside, to be computed again."""
        return next(self._read(*_RUNS, name=name), None)

    def runs(self) -> dict[str, AnyRun]:
        """Return the records of all runs, by id."""
        return {entry.id: entry for entry in self._read(*_RUNS)}

    def plan(self, name: str) -> Plan | None:
        """Return the plan of an experiment; None if there is none."""
        return next(self._read("plan", name=name), None)

    def plans(self) -> list[Plan]:
        """Return all plans."""
        return list(self._read("plan"))

    def trainings(self) -> list[TrainingRecord]:
        """Return the records of all training runs."""
        return list(self._read("training"))

    def manifests(self) -> list[Manifest]:
        """Return the manifests of all data sets."""
        return list(self._read("manifest"))

    def has(self, kind: str, name: str) -> bool:
        """Return whether there is an entry; it may be corrupt."""
        return bool(self._execute("SELECT 1 FROM entries WHERE kind = ? AND id = ?", kind, name))

    def _read(self, *kinds: str, name: str | None = None) -> Iterator[Any]:
        where = f"kind IN ({', '.join('?' * len(kinds))})" + (" AND id = ?" if name is not None else "")
        query = (
            f"SELECT kind, id, CAST(coalesce(body, '') AS BLOB), checksum FROM entries WHERE {where} ORDER BY kind, id"
        )
        for kind, key, body, checksum in self._execute(query, *kinds, *([] if name is None else [name])):
            try:
                if hashlib.sha256(body).hexdigest() != checksum:
                    raise ValueError("its checksum does not match its content")
                entry = parse(body)
                if (entry.kind, entry.id) != (kind, key):
                    raise ValueError(f"it is the {entry.kind} {entry.id}")
            except ValueError as error:
                self._set_aside(kind, key, body, str(error))
            else:
                yield entry

    def _set_aside(self, kind: str, name: str, body: bytes, reason: str) -> None:
        if not self._readonly:
            same = "kind = ? AND id = ? AND CAST(body AS BLOB) = ?"  # else another process has already replaced it
            with self._transaction():
                if self._db.execute(f"DELETE FROM entries WHERE {same}", (kind, name, body)).rowcount:
                    values = (kind, name, body, reason)
                    self._db.execute("INSERT INTO corrupt (kind, id, body, reason) VALUES (?, ?, ?, ?)", values)
        self._warn(f"Record {name} is corrupt and {'left out' if self._readonly else 'will be recomputed'}: {reason}")

    def write(self, *entries: AnyEntry) -> None:
        """Write entries, all or none, in place of earlier ones with the same kind and id."""
        with self._transaction():
            self._db.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", map(_row, entries))

    @contextmanager
    def claim(self, name: str) -> Iterator[bool]:
        """Yield whether this process alone works on a run while the context lasts; a dead owner's claim is taken."""
        with self._transaction():
            held = self._db.execute("SELECT pid, started FROM claims WHERE id = ?", (name,)).fetchone()
            own = held is None or not _is_running(*held)
            if own:
                process = psutil.Process()
                values = (name, process.pid, process.create_time())
                self._db.execute("INSERT OR REPLACE INTO claims (id, pid, started) VALUES (?, ?, ?)", values)
        try:
            yield own
        finally:
            if own:
                self._execute("DELETE FROM claims WHERE id = ?", name)

    def export(self) -> Path:
        """Write all entries to records.jsonl.gz, one JSON object per line; the same entries make the same bytes."""
        entries = self._read("evaluation", "manifest", "measurement", "plan", "training")
        lines = [json.dumps({"id": entry.id, "entry": json.loads(entry.to_json())}) + "\n" for entry in entries]
        path = self.folder / EXPORT
        with replacing(path) as beside:
            beside.write_bytes(gzip.compress("".join(lines).encode(), 9, mtime=0))
        self._execute("INSERT OR IGNORE INTO imports VALUES (?)", digest_of(path))
        return path

    def _import(self, db: sqlite3.Connection) -> None:
        """Add the exported entries, once per file: new runs, and all plans, training records and manifests."""
        path = self.folder / EXPORT
        if (
            not path.is_file()
            or not db.execute("INSERT OR IGNORE INTO imports VALUES (?)", (digest_of(path),)).rowcount
        ):
            return
        try:
            left, number = _MOST * path.stat().st_size + 2**20, 0
            with gzip.open(path, "rb") as file:
                while line := file.readline(left):
                    number, left = number + 1, left - len(line)
                    if not left:
                        raise EOFError(f"it is more than {_MOST} times as large as the file")
                    try:
                        content = json.loads(line)
                        entry = parse(json.dumps(content["entry"]))
                        if entry.id != content["id"]:
                            raise ValueError(f"its settings have the id {entry.id}")
                    except (ValueError, LookupError, TypeError, RecursionError) as error:
                        self._warn(f"Line {number} of {path.name} is corrupt and left out: {error}")
                        continue
                    known = "IGNORE" if entry.kind in _RUNS else "REPLACE"
                    db.execute(f"INSERT OR {known} INTO entries VALUES (?, ?, ?, ?)", _row(entry))
        except (OSError, EOFError, zlib.error) as error:
            self._warn(f"{path.name} is corrupt from here on; the records after it will be recomputed: {error}")

    def _open(self) -> sqlite3.Connection:
        """Open the database; for reading alone, a copy of it in RAM, so that not a byte of the folder changes."""
        if not self._readonly:
            self.folder.mkdir(parents=True, exist_ok=True)
        place = ":memory:" if self._readonly else self._path
        db = sqlite3.connect(place, timeout=_BUSY, isolation_level=None, check_same_thread=False)
        if not self._readonly:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")  # a power cut loses no finished record either
        elif self._path.is_file():
            with tempfile.TemporaryDirectory() as copy:
                for part in (self._path, self._path.with_name(f"{DATABASE}-wal")):
                    if part.is_file():
                        shutil.copyfile(part, Path(copy) / part.name)
                with closing(sqlite3.connect(Path(copy) / DATABASE)) as source:
                    source.backup(db)
        with db:
            db.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA:
                db.execute(statement)
            self._import(db)
        return db

    def _execute(self, statement: str, *values: Any) -> list[Any]:
        with self._errors():
            return self._db.execute(statement, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._errors(), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            yield

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            corrupt = "malformed" in str(error) or "not a database" in str(error)
            advice = "it is corrupt; move it away to recompute its runs" if corrupt else "choose another --output"
            raise BadFile(f"Cannot use {str(self._path)!r} ({error}): {advice}") from error
        except OSError as error:
            why = error.strerror or error
            raise BadFile(f"Cannot use the folder {str(self.folder)!r}: {why}; choose another --output") from error


def has_results(folder: Path) -> bool:
    """Return whether a folder has a database or exported records."""
    return (folder / DATABASE).is_file() or (folder / EXPORT).is_file()


def _row(entry: AnyEntry) -> tuple[str, str, str, str]:
    body = entry.to_json()
    return entry.kind, entry.id, body, hashlib.sha256(body.encode()).hexdigest()


def _is_running(pid: int, started: float) -> bool:
    """Return whether a process runs; another process may have its number by now, or a tampered claim none."""
    try:
        return bool(psutil.Process(pid).create_time() == started)
    except (psutil.NoSuchProcess, TypeError, ValueError, OverflowError):
        return False
