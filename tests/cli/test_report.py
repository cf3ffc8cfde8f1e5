import sqlite3

import pytest

from tests.lab.reports.folder import Folder, table
from tests.lab.reports.trainings import RECORDS


@pytest.fixture
def results(tmp_path):
    made = Folder(tmp_path / "results", images=20)
    made.plan("comparison", [table("PACS", [made.row("Tent", "tent", ["sketch"], seeds=(0,))], ["sketch"])])
    return made.save()


def test_a_report_of_the_usual_folder(program, tmp_path, results):
    done = program("report")
    assert done.returncode == 0, done.stderr
    assert "comparison: Comparison (complete)" in done.stdout
    assert "open results/index.html" in done.stdout
    assert {path.name for path in (tmp_path / "results").glob("*.*")} >= {
        "comparison.md", "comparison.tex", "index.html", "index.md", "results.csv", "details.csv",
    }  # fmt: skip
    assert done.stderr == ""


def test_what_belongs_in_git_is_published_with_the_named_figures(program, tmp_path, results):
    results.plan("time", [table("Time", [results.row("Tent", "tent", ["sketch"])], ["sketch"], show="time")])
    results.save()
    done = program("report", "--output", "all", "--publish", "docs", "--figure", "time")
    assert done.returncode == 0, done.stderr
    files = {path.relative_to(tmp_path / "docs").as_posix() for path in (tmp_path / "docs").rglob("*.*")}
    assert files == {"comparison.md", "time.md", "index.md", "results.csv", "figures/time.png"}
    assert (tmp_path / "all" / "index.html").is_file()
    wrong = program("report", "--output", "all", "--publish", "docs", "--figure", "tima")
    assert wrong.returncode == 1
    assert "--figure 'tima'" in wrong.stderr


def test_what_is_missing_is_said(program, results):
    results.plan("late", [table("Late", [results.row("SLR", "slr", ["sketch"], keep=False)], ["sketch"])])
    results.save()
    assert "late: Late (3 runs missing, 0 failed)" in program("report").stdout


def test_a_corrupt_record_is_named_and_does_not_stop_the_rest(program, tmp_path, results):
    with sqlite3.connect(tmp_path / "results" / "results.sqlite") as db:
        db.execute("INSERT INTO entries VALUES ('evaluation', 'broken', '{', '')")
    db.close()
    done = program("report")
    assert done.returncode == 3
    assert "note: Record broken is corrupt" in done.stderr
    assert "Record broken is corrupt" in (tmp_path / "results" / "index.html").read_text()


def test_an_unknown_view_is_said(program, results):
    results.plan("new", [table("New", [], show="pie")])
    results.save()
    done = program("report")
    assert done.returncode == 0
    assert "unknown view 'pie'" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere",), "no folder at 'nowhere'"),
        ((".",), "no records in"),
    ],
)
def test_nothing_to_report_is_one_message(program, tmp_path, arguments, said):
    done = program("report", *arguments)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_training_runs_alone_make_a_report(program, tmp_path):
    for at, record in enumerate(RECORDS):
        (tmp_path / "runs" / str(at)).mkdir(parents=True)
        (tmp_path / "runs" / str(at) / "record.json").write_text(record.to_json())
    done = program("report", "runs", "--output", "out")
    assert done.returncode == 0, done.stderr
    assert "training: 3 recipes" in done.stdout
    assert "| MLDG | 1 | 90.0 |  | 70.0 |  | 2.0 |" in (tmp_path / "out" / "training.md").read_text()
    assert "Trained networks" in (tmp_path / "out" / "index.html").read_text()
