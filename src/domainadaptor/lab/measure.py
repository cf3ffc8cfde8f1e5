"""Time and peak memory of a piece of work, and how much memory is available."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import psutil
import torch

from domainadaptor.lab.allocator import release_freed_memory

T = TypeVar("T")


def timed(work: Callable[[], T], device: torch.device) -> tuple[T, float]:
    """Return the result of some work and its seconds, including what a GPU still does after the call."""
    _synchronize(device)
    start = time.perf_counter()
    result = work()
    _synchronize(device)
    return result, time.perf_counter() - start


def _synchronize(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


class PeakMemory:
    """Measures the peak memory of one or several pieces of work and keeps the highest."""

    def __init__(self, device: torch.device | str) -> None:
        self._device = torch.device(device)
        self._highest: float | None = None
        release_freed_memory()

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure what happens inside the `with` block."""
        before = self._start()
        yield
        peak = self._peak()
        if peak is not None and before is not None:
            self._highest = max(self._highest or 0.0, peak - before)

    def megabytes(self) -> float | None:
        """Return the highest peak above the start, or None where the system does not report it."""
        return None if self._highest is None else round(self._highest / 1e6, 1)

    def _start(self) -> float | None:
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            return float(torch.cuda.memory_allocated(self._device))
        try:
            Path("/proc/self/clear_refs").write_text("5")  # Linux: reset the peak; psutil cannot
        except OSError:
            return None
        return used_memory()

    def _peak(self) -> float | None:
        if self._device.type == "cuda":
            return float(torch.cuda.max_memory_allocated(self._device))
        # VmHWM: psutil reports no peak that can be reset on Linux.
        status = Path("/proc/self/status").read_text().partition("VmHWM:")[2]
        return 1024.0 * int(status.split()[0]) if status else None


def used_memory() -> float:
    """Return the resident memory of this process in bytes."""
    return float(psutil.Process().memory_info().rss)


def available_memory(device: torch.device | str) -> float:
    """Return how many bytes can still be allocated."""
    if torch.device(device).type == "cuda":
        return float(torch.cuda.mem_get_info(torch.device(device))[0])
    return float(psutil.virtual_memory().available)
