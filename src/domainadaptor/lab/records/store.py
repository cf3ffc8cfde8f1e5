"""A results folder: one SQLite file whose rows are records, plans, training records, manifests and claims."""

import gzip
import hashlib
import json
import os
import shutil
import socket
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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
BEAT, STALE = 5.0, 60.0  # seconds: how often an owner renews its claims, and when another machine's are abandoned
_BUSY = 60.0  # seconds to wait for another process's transaction
_SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (
  kind TEXT, id TEXT, body TEXT NOT NULL, checksum TEXT NOT NULL, PRIMARY KEY (kind, id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS corrupt (kind TEXT, id TEXT, body TEXT, reason TEXT, found TEXT DEFAULT CURRENT_TIMESTAMP);
CREATE TABLE IF NOT EXISTS imports (digest TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS claims (
  id TEXT PRIMARY KEY, owner TEXT, host TEXT, pid INTEGER, started REAL, beat REAL
) WITHOUT ROWID;
"""
_RUNS = ("evaluation", "measurement")

AnyRun = EvaluationRecord | MeasurementRecord
AnyEntry = AnyRun | Plan | TrainingRecord | Manifest
_ADAPTER: TypeAdapter[AnyEntry] = TypeAdapter(Annotated[AnyEntry, Field(discriminator="kind")])


def parse(body: str | bytes) -> AnyEntry:
    """Return the record, plan, training record or manifest in a JSON object.

    Raises:
        ValueError: It is none, in one line.
    """
    try:
        return _ADAPTER.validate_json(body)
    except ValidationError as error:
        raise ValueError(summary(error)) from error


def build(content: Mapping[str, Any]) -> AnyRun:
    """Return the record of a run from its parts.

    Raises:
        ValueError: A part is missing or invalid, in one line.
    """
    record = parse(json.dumps(content))
    assert isinstance(record, EvaluationRecord | MeasurementRecord)
    return record


class Store:
    """The entries of a results folder. Several processes may share it; a killed process loses no finished record."""

    def __init__(
        self, folder: Path, corrupt: Callable[[str], None] = lambda _: None, *, readonly: bool = False
    ) -> None:
        """Open the folder's database, or make one from the exported records if there are any.

        Args:
            folder: The folder.
            corrupt: Called with one sentence per corrupt entry.
            readonly: Whether nothing is to be written, neither folder nor file.

        Raises:
            BadFile: The folder or the database cannot be made, read or written.
        """
        self.folder, self._warn, self._readonly = folder, corrupt, readonly
        self._owner = f"{socket.gethostname()}-{os.getpid()}-{time.time_ns()}"
        self._beating: threading.Thread | None = None
        self._closed = threading.Event()
        with self._errors():
            self._db = self._open_readonly() if readonly else self._open()

    @property
    def path(self) -> Path:
        """The database."""
        return self.folder / DATABASE

    def close(self) -> None:
        """Release all claims and close the database."""
        self._closed.set()
        if self._beating is not None:
            self._beating.join()
            with self._errors():
                self._db.execute("DELETE FROM claims WHERE owner = ?", (self._owner,))
        self._db.close()

    def __enter__(self) -> "Store":
        """Return the store."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    # Reading

    def run(self, name: str) -> AnyRun | None:
        """Return the record of a run; None if there is none. A corrupt one is set aside, to be computed again."""
        found = [entry for kind in _RUNS for entry in self._read("kind = ? AND id = ?", (kind, name))]
        return found[0] if found else None  # type: ignore[return-value]

    def runs(self) -> dict[str, AnyRun]:
        """Return the records of all runs, by id."""
        return {entry.id: entry for kind in _RUNS for entry in self._read("kind = ?", (kind,))}  # type: ignore[misc]

    def plan(self, name: str) -> Plan | None:
        """Return the plan of an experiment; None if there is none."""
        return next((plan for plan in self._read("kind = 'plan' AND id = ?", (name,)) if isinstance(plan, Plan)), None)

    def plans(self) -> list[Plan]:
        """Return all plans."""
        return [plan for plan in self._read("kind = 'plan'") if isinstance(plan, Plan)]

    def trainings(self) -> list[TrainingRecord]:
        """Return the records of all training runs."""
        return [entry for entry in self._read("kind = 'training'") if isinstance(entry, TrainingRecord)]

    def manifests(self) -> list[Manifest]:
        """Return the manifests of all data sets."""
        return [entry for entry in self._read("kind = 'manifest'") if isinstance(entry, Manifest)]

    def has(self, kind: str, name: str) -> bool:
        """Return whether there is an entry; it may be corrupt."""
        with self._errors():
            found = self._db.execute("SELECT 1 FROM entries WHERE kind = ? AND id = ?", (kind, name)).fetchone()
        return found is not None

    def _read(self, where: str, values: tuple[str, ...] = ()) -> Iterator[AnyEntry]:
        with self._errors():
            query = f"SELECT kind, id, CAST(body AS BLOB), checksum FROM entries WHERE {where} ORDER BY kind, id"
            rows = self._db.execute(query, values).fetchall()
        for kind, name, body, checksum in rows:
            try:
                yield _checked(kind, name, body, checksum)
            except ValueError as error:
                self._set_aside(kind, name, body, str(error))

    def _set_aside(self, kind: str, name: str, body: bytes, reason: str) -> None:
        if self._readonly:
            self._warn(f"Record {name} is corrupt and left out: {reason}")
            return
        with self._errors(), self._transaction():
            held = self._db.execute("SELECT CAST(body AS BLOB) FROM entries WHERE kind = ? AND id = ?", (kind, name))
            if held.fetchone() == (body,):  # else another process has already replaced it
                self._db.execute("DELETE FROM entries WHERE kind = ? AND id = ?", (kind, name))
                values = (kind, name, body, reason)
                self._db.execute("INSERT INTO corrupt (kind, id, body, reason) VALUES (?, ?, ?, ?)", values)
        self._warn(f"Record {name} is corrupt and will be recomputed: {reason}")

    # Writing

    def write(self, *entries: AnyEntry) -> None:
        """Write entries, all or none, in place of earlier ones with the same kind and id.

        Raises:
            BadFile: They cannot be written.
        """
        with self._errors(), self._transaction():
            self._db.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", map(_row, entries))

    @contextmanager
    def claim(self, name: str) -> Iterator[bool]:
        """Yield whether this process alone works on a run while the context lasts; a dead owner's claim is taken."""
        with self._errors(), self._transaction():
            held = self._db.execute("SELECT host, pid, started, beat FROM claims WHERE id = ?", (name,)).fetchone()
            own = held is None or _is_abandoned(*held)
            if own:
                process = psutil.Process()
                values = (name, self._owner, socket.gethostname(), process.pid, process.create_time(), time.time())
                self._db.execute("INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?, ?, ?)", values)
        if own:
            self._keep_beating()
        try:
            yield own
        finally:
            if own:
                with self._errors():
                    self._db.execute("DELETE FROM claims WHERE id = ? AND owner = ?", (name, self._owner))

    def _keep_beating(self) -> None:
        if self._beating is None:
            self._beating = threading.Thread(target=self._beat, daemon=True, name="claims")
            self._beating.start()

    def _beat(self) -> None:
        while not self._closed.wait(BEAT):
            try:
                with sqlite3.connect(self.path, timeout=_BUSY) as db:
                    db.execute("UPDATE claims SET beat = ? WHERE owner = ?", (time.time(), self._owner))
                db.close()
            except sqlite3.Error:  # the next write reports it
                continue

    # Export

    def export(self) -> Path:
        """Write all entries to records.jsonl.gz, one JSON object per line; the same entries make the same bytes."""
        lines = [json.dumps({"id": entry.id, "entry": json.loads(entry.to_json())}) for entry in self._read("1")]
        path = self.folder / EXPORT
        with replacing(path) as beside:
            beside.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode(), 9, mtime=0))
        with self._errors():
            self._db.execute("INSERT OR IGNORE INTO imports VALUES (?)", (digest_of(path),))
        return path

    def _import(self, db: sqlite3.Connection) -> None:
        """Add the exported entries, once per file: new runs, and all plans, training records and manifests."""
        path = self.folder / EXPORT
        digest = digest_of(path) if path.is_file() else ""
        if not digest or db.execute("SELECT 1 FROM imports WHERE digest = ?", (digest,)).fetchone():
            return
        for row in self._exported(path):
            db.execute(f"INSERT OR {'IGNORE' if row[0] in _RUNS else 'REPLACE'} INTO entries VALUES (?, ?, ?, ?)", row)
        db.execute("INSERT INTO imports VALUES (?)", (digest,))

    def _exported(self, path: Path) -> Iterator[tuple[str, str, str, str]]:
        try:
            with gzip.open(path, "rt", encoding="utf-8") as file:
                for number, line in enumerate(file, 1):
                    try:
                        content = json.loads(line)
                        entry = parse(json.dumps(content["entry"]))
                        if entry.id != content["id"]:
                            raise ValueError(f"its settings have the id {entry.id}")
                    except (ValueError, LookupError, TypeError, RecursionError) as error:
                        self._warn(f"Line {number} of {path.name} is corrupt and left out: {error}")
                        continue
                    yield _row(entry)
        except (OSError, EOFError, UnicodeDecodeError) as error:
            self._warn(f"{path.name} is corrupt from here on; the records after it will be recomputed: {error}")

    # Opening

    def _open(self) -> sqlite3.Connection:
        self.folder.mkdir(parents=True, exist_ok=True)
        db = self._connect(self.path)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")  # a power cut loses no finished record either
        db.execute("BEGIN IMMEDIATE")
        for statement in filter(str.strip, _SCHEMA.split(";")):
            db.execute(statement)
        self._import(db)
        db.execute("COMMIT")
        return db

    def _open_readonly(self) -> sqlite3.Connection:
        """Open the database without writing a byte into the folder: a copy of it, or the exported records."""
        db = self._connect(":memory:")
        if self.path.is_file():
            with tempfile.TemporaryDirectory() as copy:
                for ending in ("", "-wal"):
                    if (part := self.path.with_name(f"{DATABASE}{ending}")).is_file():
                        shutil.copyfile(part, Path(copy) / part.name)
                source = sqlite3.connect(Path(copy) / DATABASE)
                source.backup(db)
                source.close()
        db.executescript(_SCHEMA)
        self._import(db)
        return db

    @staticmethod
    def _connect(path: Path | str) -> sqlite3.Connection:
        return sqlite3.connect(path, timeout=_BUSY, isolation_level=None, check_same_thread=False)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            corrupt = "malformed" in str(error) or "not a database" in str(error)
            advice = "it is corrupt; move it away to recompute its runs" if corrupt else "choose another --output"
            raise BadFile(f"Cannot use {str(self.path)!r} ({error}): {advice}") from error
        except OSError as error:
            why = error.strerror or error
            raise BadFile(f"Cannot use the folder {str(self.folder)!r}: {why}; choose another --output") from error


def has_results(folder: Path) -> bool:
    """Return whether a folder has a database or exported records."""
    return (folder / DATABASE).is_file() or (folder / EXPORT).is_file()


def _row(entry: AnyEntry) -> tuple[str, str, str, str]:
    body = entry.to_json()
    return entry.kind, entry.id, body, hashlib.sha256(body.encode()).hexdigest()


def _checked(kind: str, name: str, body: bytes, checksum: str) -> AnyEntry:
    if hashlib.sha256(body).hexdigest() != checksum:
        raise ValueError("its checksum does not match its content")
    entry = parse(body)
    if (entry.kind, entry.id) != (kind, name):
        raise ValueError(f"it is the {entry.kind} {entry.id}")
    return entry


def _is_abandoned(host: str, pid: int, started: float, beat: float) -> bool:
    """Return whether the owner of a claim is dead; on another machine, whether it stopped renewing the claim."""
    if host != socket.gethostname():
        return abs(time.time() - beat) > STALE
    try:
        return bool(psutil.Process(pid).create_time() != started)
    except psutil.NoSuchProcess:
        return True
