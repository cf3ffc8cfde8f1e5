"""How long adaptation takes and how much memory, against plain inference in the same run."""
