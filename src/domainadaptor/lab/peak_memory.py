"""Peak memory of a piece of work, and how much memory is used and available."""

from pathlib import Path
from types import TracebackType

import psutil
import torch

from domainadaptor.lab.allocator import release_freed_memory


class PeakMemory:
    """Context manager that measures peak memory; it can be entered repeatedly and keeps the highest peak."""

    def __init__(self, device: torch.device | str) -> None:
        self._device = torch.device(device)
        self._before: float | None = None
        self._highest: float | None = None
        release_freed_memory()

    def __enter__(self) -> "PeakMemory":
        """Start a measurement."""
        self._before = self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the measurement."""
        peak = self._peak()
        if peak is not None and self._before is not None:
            self._highest = max(self._highest or 0.0, peak - self._before)

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
