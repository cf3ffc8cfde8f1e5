import json


def test_a_table_and_a_report(program, tmp_path, monkeypatch):
    command = ["bench", "--network", "resnet20", "--method", "adabn", "--method", "tent", "--size", "16",
               "--batch-size", "2", "--rounds", "1", "--no-memory", "--device", "cpu", "--output", "out"]  # fmt: skip
    report = json.loads(program(*command, "--json").stdout)
    assert report == json.loads((tmp_path / "out" / "bench.json").read_text())
    assert [row["method"] for row in report["rows"]] == ["adabn", "tent"]
    assert report["methods"]["tent"] == {"predict": "after"}
    monkeypatch.setenv("COLUMNS", "80")
    done = program(*command)
    assert done.returncode == 0, done.stderr
    for word in ("adabn", "backward", "statistics", "thread"):
        assert word in done.stdout
    assert "…" not in done.stdout


def test_mistakes_are_explained(program):
    for more, hint in [
        (["--network", "resnet19"], "unknown network"),
        (["--method", "tnt"], "did you mean 'tent'"),
    ]:
        done = program("bench", *more)
        assert done.returncode == 1
        assert hint in done.stderr
