"""The script that compares the numbers of two result folders."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "tools" / "compare_tables.py"
TABLE = (
    "# Title\n\n## Table\n\n| method | photo | mean |\n| --- | ---: | ---: |\n| {label} | {value} | **67.3 ± 0.5** |\n"
)
HEAD = "{first}table,group,row,column,{what},value,deviation,seeds,paper,paper_deviation,difference,state,reason\n"
LINE = 'Table,,Tent,photo,"accuracy, %",74.5,,1,,,,done,\n'

pytestmark = pytest.mark.skipif(not SCRIPT.is_file(), reason="tools are not part of the source distribution")


@pytest.fixture
def folders(tmp_path):
    """The old layout, and the new one with the same numbers and another word."""
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, label in ((old, "untouched"), (new, "source model")):
        folder.mkdir()
        (folder / "x.md").write_text(TABLE.format(label=label, value="74.5"))
    (old / "x.csv").write_text(HEAD.format(first="", what="what") + LINE)
    (new / "results.csv").write_text(HEAD.format(first="experiment,", what="measure") + f"x,{LINE}")
    return old, new


def compared(old, new):
    done = subprocess.run([sys.executable, SCRIPT, old, new], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_other_words_and_the_same_numbers_are_equal(folders):
    status, text = compared(*folders)
    assert status == 0, text
    assert "Markdown: 2 before, 2 now, 2 identical" in text
    assert "CSV: 2 before, 2 now, 2 identical" in text


@pytest.mark.parametrize(
    ("value", "label", "word"),
    [("74.6", "source model", "changed"), ("", "source model", "lost"), ("74.5", "Tent", "added")],
)
def test_a_number_that_is_changed_lost_or_moved_is_a_difference(folders, value, label, word):
    (folders[1] / "x.md").write_text(TABLE.format(label=label, value=value))
    status, text = compared(*folders)
    assert status == 1
    assert f"Markdown {word}: x | Table" in text


def test_a_changed_number_of_the_csv_is_a_difference(folders):
    path = folders[1] / "results.csv"
    path.write_text(path.read_text().replace("74.5", "74.5001"))
    assert compared(*folders)[0] == 1
