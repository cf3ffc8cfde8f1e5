"""Time and memory of adaptation, relative to plain inference in the same run."""
