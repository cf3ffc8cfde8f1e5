"""Hostile streams at full length: what is left of the source model under every method that remembers, with the guard.

A test is one method under one kind of stream. Its result is kept in long-results/, so that a second call goes on where
the first one stopped; `python -m tests.long.test_collapse` prints them as a table.
"""

import json
from pathlib import Path

import pytest
import torch

import domainadaptor
from tests.hostile import HOSTILE, REMEMBERING, course, trained_on_digits

RESULTS = Path(__file__).parents[2] / "long-results" / "collapse"
BATCHES = 5000
# Points below the source model, where more than two are known: statistics and stored features follow the stream, and
# the guard sees only some of that. The docstrings of these methods say so.
MAY_LOSE = {"delta": 40.0, "rotta": 35.0, "tsd": 25.0, "note": 25.0, "t3a": 10.0}


@pytest.fixture(scope="module")
def digits():
    return trained_on_digits()


@pytest.mark.long
@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("method", REMEMBERING)
def test_at_most_two_points_are_lost(method, kind, digits):
    file = RESULTS / f"{method}, {kind}.json"
    settings = {"batches": BATCHES, "version": domainadaptor.__version__, "torch": torch.__version__}
    found = json.loads(file.read_text()) if file.is_file() else {}
    if not settings.items() <= found.items():
        found = settings | {"method": method, "kind": kind} | course(method, kind, digits, BATCHES)
        RESULTS.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(found) + "\n")
    assert found["last"] >= found["source"] - MAY_LOSE.get(method, 2.0)
    assert found["lowest"] >= found["source"] - MAY_LOSE.get(method, 2.0)


def main() -> None:
    """Print the results as a table."""
    rows = [json.loads(path.read_text()) for path in RESULTS.glob("*.json")]
    found = {(row["method"], row["kind"]): row for row in rows}
    print(f"| method | {' | '.join(HOSTILE)} |\n|---|{'---|' * len(HOSTILE)}")
    for method in REMEMBERING:
        cells = [found.get((method, kind)) for kind in HOSTILE]
        print(f"| {method} |", " | ".join(f"{c['lowest']:.1f} ({c['trips']})" if c else "" for c in cells), "|")


if __name__ == "__main__":
    main()
