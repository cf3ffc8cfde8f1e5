import json


def test_a_table_a_report_and_a_chart(program, tmp_path, monkeypatch):
    command = ["bench", "--network", "resnet20", "--method", "adabn", "--method", "tent", "--size", "16",
               "--batch-size", "2", "--rounds", "1", "--no-memory", "--device", "cpu", "--output", "out"]  # fmt: skip
    report = json.loads(program(*command, "--json").stdout)
    assert report == json.loads((tmp_path / "out" / "bench.json").read_text())
    assert [row["method"] for row in report["rows"]] == ["adabn", "tent"]
    assert report["methods"]["tent"] == {"predict": "after"}
    assert (tmp_path / "out" / "bench.png").is_file()
    monkeypatch.setenv("COLUMNS", "80")
    done = program(*command, "--compare", "out/bench.json")
    assert done.returncode == 0, done.stderr
    for word in ("adabn", "before", "backward", "statistics", "thread"):
        assert word in done.stdout
    assert "…" not in done.stdout


def test_growth_is_a_table_for_each_axis(program, tmp_path, monkeypatch):
    monkeypatch.setattr("domainadaptor.lab.bench.benchmark.BATCH_SIZES", (1, 2))
    monkeypatch.setattr("domainadaptor.lab.bench.benchmark.SIDES", (16,))
    monkeypatch.setattr("domainadaptor.lab.bench.benchmark.NETWORKS", ("resnet20", "resnet32"))
    command = ["bench", "--growth", "--network", "resnet20", "--method", "adabn", "--size", "16", "--batch-size", "2",
               "--rounds", "1", "--no-memory", "--device", "cpu", "--output", "out"]  # fmt: skip
    done = program(*command)
    assert done.returncode == 0, done.stderr
    for point in ("batch size", "resnet20, 1 x 16²", "side", "network", "resnet32, 2 x 16²"):
        assert point in done.stdout
    report = json.loads((tmp_path / "out" / "bench.json").read_text())
    assert [row["axis"] for row in report["rows"]] == ["batch size", "batch size", "side", "network", "network"]
    assert (tmp_path / "out" / "bench.png").is_file()
    done = program(*command, "--batch-size", "4")
    assert done.returncode == 1
    assert "pass each at most once" in done.stderr


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
