"""Files that are written completely or not at all, locks, checksums, and text for CSV files."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from domainadaptor.errors import BadFile

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def make_folder(folder: Path) -> None:
    """Create a folder and those above it, if they do not exist."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadFile(f"Cannot create the folder {str(folder)!r}: {error.strerror or error}; choose another") from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path whose file replaces `path` at the end; an error leaves `path` as it was."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.unlink(missing_ok=True)  # it may be a link to another file
        yield temporary
        _sync(temporary)  # otherwise a power failure could leave an empty file under the name
        temporary.chmod(0o666 & ~_umask())  # some writers create files that only their owner can read
        temporary.replace(path)
        if os.name == "posix":
            _sync(path.parent)
    except OSError as error:
        raise BadFile(f"Cannot write {str(path)!r}: {error.strerror or error}; choose another place") from error
    finally:
        with suppress(OSError):  # `remove_leftovers` will
            temporary.unlink(missing_ok=True)


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Create a folder and keep other processes out of it; a killed process releases it."""
    make_folder(folder)
    with locked(folder / ".lock") as acquired:
        if not acquired:
            raise BadFile(f"Another process uses {str(folder)!r}; wait for it, or stop it")
        remove_leftovers(folder, ".*.*")
        yield


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Try to lock a file and yield whether that worked; a killed process releases it."""
    try:  # a link is not followed, and nothing is overwritten
        handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    except OSError as error:
        raise BadFile(f"Cannot write {str(path)!r}: {error.strerror or error}; choose another place") from error
    with open(handle, "r+b") as lock:
        acquired = True
        try:
            if fcntl is not None:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            acquired = False
        yield acquired


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):  # hashlib.file_digest needs Python 3.11
            digest.update(chunk)
    return digest.hexdigest()


def csv_text(text: str) -> str:
    """Return text that a spreadsheet takes for text: an apostrophe is put before what would be a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else text


def remove_leftovers(folder: Path, pattern: str) -> None:
    """Remove incomplete files of killed processes: names that end in the id of a process that no longer runs."""
    for left in folder.glob(pattern):
        process = left.name.rpartition(".")[2]
        if process.isdigit() and not psutil.pid_exists(int(process)):
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                with suppress(OSError):
                    left.unlink()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    held = os.umask(0)
    os.umask(held)
    return held
