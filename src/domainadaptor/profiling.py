"""Named phases of a batch, for profilers."""

from torch.profiler import record_function

FIRST = "first pass"
STATISTICS = "statistics (in the passes)"
BACKWARD = "backward"
UPDATE = "update"
VIEWS = "views"
SECOND = "second pass"
PHASES = (FIRST, STATISTICS, VIEWS, BACKWARD, UPDATE, SECOND)


def phase(name: str) -> record_function:
    """Return a context that profilers show under this name. It takes microseconds without a profiler."""
    return record_function(name)
