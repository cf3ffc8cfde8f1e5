"""Run the notebooks of docs/tutorials from top to bottom and store their outputs: `make tutorials`."""

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "docs" / "tutorials"


def run(path: Path) -> nbformat.NotebookNode:
    """Return a notebook as it is after running in an empty folder; raise CellExecutionError if a cell fails."""
    book = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(book, timeout=300, record_timing=False, resources={"metadata": {"path": folder}})
        client.execute(env=os.environ | {"PYTHONWARNINGS": "ignore"})
    return book


def main(names: list[str]) -> None:
    """Run and store the named notebooks, or all."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        if not names or path.stem in names:
            print(path.name)
            nbformat.write(run(path), path)


if __name__ == "__main__":
    main(sys.argv[1:])
