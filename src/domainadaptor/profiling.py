"""Named phases of a batch, for profilers."""

from torch.profiler import record_function

FIRST = "first pass"
STATISTICS = "statistics (in the passes)"
BACKWARD = "backward"
UPDATE = "update"
VIEWS = "views"
SECOND = "second pass"
PHASES = (FIRST, STATISTICS, VIEWS, BACKWARD, UPDATE, SECOND)

phase = record_function  # a context that profilers show under a name; it takes microseconds without a profiler
