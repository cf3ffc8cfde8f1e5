"""Main memory: the most that some work took, and keeping what a batch freed for the next one."""

import ctypes
import functools
import os
import sys
import weakref
from pathlib import Path
from types import TracebackType

import torch

# Of the GNU C library's malloc.h.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_LARGE = 2**20  # bytes of a batch; what smaller ones free is kept anyway


class PeakMemory:
    """A context that can be entered again and again; it keeps the highest peak."""

    def __init__(self, device: torch.device | str) -> None:
        self._device = torch.device(device)
        self._before: float | None = None
        self._most: float | None = None
        give_back()

    def __enter__(self) -> "PeakMemory":
        """From here on."""
        self._before = self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """To here."""
        peak = self._peak()
        if peak is not None and self._before is not None:
            self._most = max(self._most or 0.0, peak - self._before)

    def megabytes(self) -> float | None:
        """The highest peak above the beginning; None where the system does not tell."""
        return None if self._most is None else round(self._most / 1e6, 1)

    def _begin(self) -> float | None:
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            return float(torch.cuda.memory_allocated(self._device))
        try:
            Path("/proc/self/clear_refs").write_text("5")  # Linux: forget the peak so far
        except OSError:
            return None
        return in_use()

    def _peak(self) -> float | None:
        if self._device.type == "cuda":
            return float(torch.cuda.max_memory_allocated(self._device))
        return _status("VmHWM")


def in_use() -> float | None:
    """Bytes of main memory that this process uses; None where the system does not tell."""
    return _status("VmRSS")


def available(device: torch.device | str) -> float | None:
    """Bytes that could still be taken; None where the system does not tell."""
    if torch.device(device).type == "cuda":
        return float(torch.cuda.mem_get_info(torch.device(device))[0])
    return _kilobytes(Path("/proc/meminfo"), "MemAvailable")


def keep_freed(user: object, batch: torch.Tensor) -> None:
    """What the process frees stays with it from now on; it goes back once, when the user is no more.

    A backward needs gigabytes for a moment. Taken from the system anew for each batch, page by page, they cost a tenth
    of the time. Only the GNU C library can be told; `DOMAINADAPTOR_KEEP_MEMORY=0` in the environment prevents it.
    """
    large = batch.device.type == "cpu" and batch.numel() * batch.element_size() >= _LARGE
    if large and os.environ.get("DOMAINADAPTOR_KEEP_MEMORY", "1") != "0" and _told_to_keep():
        weakref.finalize(user, give_back).atexit = False


@functools.cache
def _told_to_keep() -> bool:
    tell = _of_c("mallopt")
    return tell is not None and all(tell(what, value) for what, value in ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, -1)))


def give_back() -> None:
    """What was freed but is still held goes back to the system."""
    trim = _of_c("malloc_trim")
    if trim is not None:
        trim(0)


def _of_c(name: str) -> "ctypes._NamedFuncPointer | None":
    """A function of the GNU C library; None elsewhere."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


def _status(name: str) -> float | None:
    return _kilobytes(Path("/proc/self/status"), name)


def _kilobytes(path: Path, name: str) -> float | None:
    """Bytes, from a line such as `VmRSS: 12 kB`."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    found = next((line for line in lines if line.startswith(f"{name}:")), None)
    return None if found is None else 1024.0 * int(found.split()[1])
