"""Time and memory of adaptation, relative to the source model in the same run."""
