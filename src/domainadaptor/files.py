"""Files that are written whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from domainadaptor.errors import BadFile


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
        beside.replace(path)
    except OSError as error:
        raise BadFile(f"cannot write {str(path)!r}: {error.strerror or error}; choose another place") from error
    finally:
        beside.unlink(missing_ok=True)
