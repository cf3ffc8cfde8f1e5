"""Numbers in the remarks of experiments are in the published results, or differences of two of them in one column."""

import csv
import re
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import pytest

from domainadaptor.lab.experiments.spec import experiment_files, tomllib

CLONE = Path(__file__).parents[1]
RESULTS = CLONE / "docs" / "results" / "results.csv"
NUMBER = re.compile(r"\d+\.\d+")


def known_numbers(experiment: str) -> set[str]:
    """Return the numbers of the experiment's tables as text, with one to three decimals."""
    columns = defaultdict(list)
    with RESULTS.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["experiment"] == experiment:
                for kind in ("value", "paper", "difference"):
                    if row[kind]:
                        columns[row["table"], row["column"], kind].append(float(row[kind]))
    numbers = {abs(value) for values in columns.values() for value in values}
    for values in columns.values():
        for one, other in combinations(values, 2):
            numbers |= {abs(one - other), abs(round(one, 1) - round(other, 1))}
    return {f"{number:.{digits}f}" for number in numbers for digits in (1, 2, 3)}


@pytest.mark.parametrize("path", experiment_files(), ids=lambda path: path.stem)
def test_numbers_in_remarks_are_measured(path):
    text = path.read_text(encoding="utf-8")
    remarks = tomllib.loads(text).get("remarks", [])
    if not remarks:
        return
    if not RESULTS.is_file():
        pytest.skip("docs/results is not part of the sdist")
    settings = set(NUMBER.findall(re.sub(r"^remarks = \[.*?^\]", "", text, flags=re.S | re.M))) | {"0.99"}
    known = known_numbers(path.stem)
    for remark in remarks:
        wrong = [number for number in NUMBER.findall(remark) if number not in known | settings]
        assert not wrong, remark
