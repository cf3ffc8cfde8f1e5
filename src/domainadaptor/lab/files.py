"""Files that are written whole or not at all."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from domainadaptor.errors import BadFile

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside the file: what is written there takes its place in the end, and nothing does after an error.

    Raises:
        BadFile: It cannot be written there.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield beside
        with beside.open("rb+") as file:
            os.fsync(file.fileno())  # a name that points to nothing after a power cut would be worse than none
        beside.chmod(0o666 & ~_umask())  # some writers make files that nobody else can read
        beside.replace(path)
    except OSError as error:
        raise BadFile(f"cannot write {str(path)!r}: {error.strerror or error}; choose another place") from error
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Makes a folder and keeps other processes out of it, while the context lasts; a killed process lets go of it.

    Raises:
        BadFile: It cannot be made, or another process is at work in it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadFile(f"cannot make the folder {str(folder)!r}: {error.strerror or error}; choose another") from error
    with locked(folder / ".lock") as own:
        if not own:
            raise BadFile(f"another process is at work in {str(folder)!r}; wait for it, or stop it")
        sweep(folder, ".*.*")
        yield


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Whether this process alone has the lock of that name, while the context lasts; a killed process lets go of it.

    Raises:
        BadFile: The file cannot be made.
    """
    try:
        lock = path.open("w")
    except OSError as error:
        raise BadFile(f"cannot write {str(path)!r}: {error.strerror or error}; choose another place") from error
    with lock:
        own = True
        if fcntl is not None:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                own = False
        yield own


def digest_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):  # hashlib.file_digest is younger than Python 3.10
            digest.update(chunk)
    return digest.hexdigest()


def sweep(folder: Path, pattern: str) -> None:
    """Removes what killed processes left half-written: names that end in the number of a process that is gone."""
    for left in folder.glob(pattern):
        number = left.name.rpartition(".")[2]
        if number.isdigit() and not _runs(int(number)):
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is somebody else's
        return True
    return True


def _umask() -> int:
    held = os.umask(0)
    os.umask(held)
    return held
