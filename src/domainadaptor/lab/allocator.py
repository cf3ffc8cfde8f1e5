"""How the C library's allocator treats freed memory; process-wide, so only programs call this, never library code."""

import ctypes
import os
import sys

# From the GNU C library's malloc.h.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4


def keep_freed_memory() -> bool:
    """Keep freed memory in this process from now on instead of returning it to the system; True if that worked.

    A backward pass needs gigabytes for a moment. Requesting them page by page for every batch costs a tenth of the
    time. Only the GNU C library supports this; `DOMAINADAPTOR_KEEP_MEMORY=0` in the environment disables it.
    """
    if os.environ.get("DOMAINADAPTOR_KEEP_MEMORY", "1") == "0":
        return False
    mallopt = _glibc("mallopt")
    return mallopt is not None and all(mallopt(name, value) for name, value in ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, -1)))


def release_freed_memory() -> None:
    """Return freed memory that the process still holds to the system."""
    trim = _glibc("malloc_trim")
    if trim is not None:
        trim(0)


def _glibc(name: str) -> "ctypes._NamedFuncPointer | None":
    """Return a function of the GNU C library, or None on other systems."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
