import json


def test_a_table_and_a_report(program, tmp_path, monkeypatch):
    command = ["bench", "--network", "resnet20", "--method", "adabn", "--method", "tent", "--size", "16",
               "--batch-size", "2", "--rounds", "1", "--no-memory", "--device", "cpu", "--output", "out"]  # fmt: skip
    report = json.loads(program(*command, "--json").stdout)
    assert report == json.loads((tmp_path / "out" / "bench.json").read_text())
    assert [row["method"] for row in report["rows"]] == ["adabn", "tent"]
    assert report["methods"]["tent"] == {"predict": "after"}
    monkeypatch.setenv("COLUMNS", "80")
    done = program(*command, "--compare", "out/bench.json")
    assert done.returncode == 0, done.stderr
    for word in ("adabn", "before", "backward", "statistics", "thread"):
        assert word in done.stdout
    assert "…" not in done.stdout


def test_mistakes_are_explained(program, tmp_path):
    (tmp_path / "odd.json").write_text("[]")
    for more, hint in [
        (["--network", "resnet19"], "unknown network"),
        (["--method", "tnt"], "did you mean 'tent'"),
        (["--compare", "none.json"], "Cannot read"),
        (["--compare", "odd.json"], "expected a bench.json"),
    ]:
        done = program("bench", *more)
        assert done.returncode == 1
        assert hint in done.stderr
