"""Experiments: files that name the cells of tables, and the records of the cells that were run."""
