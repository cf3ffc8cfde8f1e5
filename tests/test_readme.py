"""The numbers of README are those of the records, and it stays short."""

import csv
import re
from pathlib import Path

import pytest

CLONE = Path(__file__).parents[1]
RESULTS = CLONE / "docs" / "results" / "results.csv"
TABLES = {  # column of README -> table of the experiment
    "ResNet-20, 64x64": "PACS at 64x64, ResNet-20",
    "ResNet-18, 128x128": "PACS at 128x128, ImageNet ResNet-18",
    "EfficientNet-Lite0, 160x160": "PACS at 160x160, ImageNet EfficientNet-Lite0",
}


def test_the_results_table_has_the_numbers_of_the_records():
    if not RESULTS.is_file():
        pytest.skip("docs/results is not part of the sdist")
    with RESULTS.open(encoding="utf-8") as file:
        means = {
            (row["table"], row["row"]): float(row["value"])
            for row in csv.DictReader(file)
            if row["experiment"] == "comparison" and row["column"] == "mean" and row["state"] == "done"
        }
    text = (CLONE / "README.md").read_text(encoding="utf-8").partition("<!-- numbers: comparison -->\n")[2]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.partition("\n\n")[0].splitlines()]
    (_, *columns), _, *rows = lines
    assert set(columns) == set(TABLES)
    assert len(rows) >= 6
    for name, *cells in rows:
        row = "DeepAll" if name == "Source model" else name
        for column, cell in zip(columns, cells, strict=True):
            assert cell == f"{means[TABLES[column], row]:.1f}", (name, column)


def test_other_numbers_of_readme_are_settings_and_sizes():
    """An accuracy in running text would go stale."""
    text = (CLONE / "README.md").read_text(encoding="utf-8")
    prose = re.sub(r"```.*?```|^\|.*$|`[^`]*`", "", text, flags=re.S | re.M)
    assert set(re.findall(r"\d+\.\d+", prose)) <= {"3.10", "0.001", "0.05"}


def test_it_is_at_most_130_lines():
    assert len((CLONE / "README.md").read_text(encoding="utf-8").splitlines()) <= 130
