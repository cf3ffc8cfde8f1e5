import json

import pytest

from tests.lab.data.trees import picture
from tests.lab.reports.folder import CLASSES, DOMAINS, Folder, table
from tests.lab.reports.test_training import RECORDS


@pytest.fixture
def results(tmp_path):
    made = Folder(tmp_path / "results", images=20)
    made.plan("comparison", [table("PACS", [made.row("Tent", "tent", ["sketch"], seeds=(0,))], ["sketch"])])
    return made


def test_a_report_of_the_usual_folder(program, tmp_path, results):
    done = program("report")
    assert done.returncode == 0, done.stderr
    assert "comparison: Comparison (complete)" in done.stdout
    assert "open results/index.html" in done.stdout
    assert {path.suffix for path in (tmp_path / "results").glob("comparison.*")} == {".md", ".csv", ".tex"}
    assert done.stderr.startswith("note: The images themselves are not on this machine")
    assert done.stderr.count("\n") == 1


def test_elsewhere_one_alone_and_as_json(program, tmp_path, results):
    results.plan(
        "time", [table("Time", [results.row("Tent", "tent", ["sketch"], keep=False)], ["sketch"], show="time")]
    )
    done = program("report", "results", "--output", "out", "--only", "time", "--json")
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    assert list(value["experiments"]) == ["time"]
    assert len(value["experiments"]["time"]["tables"][0]["missing"]) == 2  # one of three is in the comparison
    assert (tmp_path / "out" / "time.html").is_file()
    assert not (tmp_path / "results" / "index.html").exists()


def test_what_is_missing_is_said(program, results):
    results.plan("late", [table("Late", [results.row("SLR", "slr", ["sketch"], keep=False)], ["sketch"])])
    assert "late: Late (3 runs missing, 0 failed)" in program("report").stdout


def test_damage_is_named_and_does_not_stop_the_rest(program, tmp_path, results):
    (tmp_path / "results" / "records" / "broken.json").write_text("{")
    done = program("report")
    assert done.returncode == 3
    assert "note: records/broken.json is damaged and left out: it is no JSON" in done.stderr
    assert "broken.json" in (tmp_path / "results" / "index.html").read_text()


def test_a_show_that_is_not_known_is_said(program, results):
    results.plan("new", [table("New", [], show="pie")])
    done = program("report")
    assert done.returncode == 0
    assert "'pie', which is not known" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("nowhere",), "no folder at 'nowhere'"), ((".",), "no plan in"), (("results", "--only", "tame"), "did you mean")],
)
def test_nothing_to_report_is_one_message(program, tmp_path, arguments, said):
    if "results" in arguments:
        Folder(tmp_path / "results").plan("time", [])
    done = program("report", *arguments)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_training_runs_alone_make_a_report(program, tmp_path):
    for at, record in enumerate(RECORDS):
        (tmp_path / "runs" / str(at)).mkdir(parents=True)
        (tmp_path / "runs" / str(at) / "record.json").write_text(json.dumps(record))
    done = program("report", "runs", "--output", "out")
    assert done.returncode == 0, done.stderr
    assert "training: 3 ways of training" in done.stdout
    assert "| MLDG | 1 | 90.0 |  | 70.0 |  | 2.0 |" in (tmp_path / "out" / "training.md").read_text()
    assert (tmp_path / "out" / "figures" / "training.svg").is_file()
    assert "Trained networks" in (tmp_path / "out" / "index.html").read_text()


def test_images_whose_answer_changed_are_shown_where_the_data_are(program, tmp_path, results, monkeypatch):
    monkeypatch.delenv("DOMAINADAPTOR_DATA", raising=False)
    assert program("report").returncode == 0
    assert not (tmp_path / "results" / "figures" / "comparison-changed.png").exists()
    for domain in DOMAINS:
        for kind in CLASSES:
            for at in range(20):
                picture(tmp_path / "data" / "PACS" / domain / kind / f"{at}.jpg")
    assert program("report", "--root", "data").returncode == 0
    assert (tmp_path / "results" / "figures" / "comparison-changed.png").is_file()
