"""How cost grows: one thing at a time, and what does not fit is said, not tried."""

import pytest
from PIL import Image

from domainadaptor.lab.bench import benchmark
from domainadaptor.lab.bench.benchmark import run_bench
from domainadaptor.lab.bench.chart import draw
from domainadaptor.lab.bench.timing import BenchConfig, Timing

BASE = BenchConfig("cifar:resnet20", 8, 16, rounds=1)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(benchmark, "BATCH_SIZES", (1, 8, 64))
    monkeypatch.setattr(benchmark, "SIDES", (16, 32))
    monkeypatch.setattr(benchmark, "NETWORKS", ("resnet20",))


def test_one_thing_changes_at_a_time():
    for axis, setting in benchmark.vary_one(BASE):
        same = {"batch size": setting.batch_size, "side": setting.size, "network": setting.network}
        was = {"batch size": BASE.batch_size, "side": BASE.size, "network": BASE.network}
        del same[axis], was[axis]
        assert same == was
        assert setting.rounds == BASE.rounds


def test_what_does_not_fit_is_left_out_and_said(small, monkeypatch, tmp_path):
    # A method that takes a megabyte an image, on a machine with 50 megabytes to spare: 40 may be used.
    monkeypatch.setattr(benchmark, "peak_memory", lambda setting, *_: float(setting.batch_size))
    monkeypatch.setattr(benchmark, "available_memory", lambda _: 50e6)
    timing = Timing("adabn", 2.0, 1.0, 2.0, 1.9, 2.1, 500.0, 1.0, 1.0)
    monkeypatch.setattr(benchmark, "time_methods", lambda *_: [timing])
    kept = []
    report = run_bench(
        benchmark.vary_one(BASE), {"adabn": {}}, True, lambda _: None, lambda now: kept.append(len(now["rows"]))
    )
    assert [(point["axis"], point["batch_size"]) for point in report["skipped"]] == [("batch size", 64)]
    assert report["skipped"][0]["reason"] == "needs about 64 MB, but only 40 MB are available"
    assert [(row["axis"], row["batch_size"], row["size"]) for row in report["rows"]] == [
        ("batch size", 1, 16), ("batch size", 8, 16), ("side", 8, 16), ("side", 8, 32), ("network", 8, 16),
    ]  # fmt: skip
    assert kept == [1, 2, 2, 3, 4, 5]
    draw(report, tmp_path / "growth.png")
    with Image.open(tmp_path / "growth.png") as picture:
        assert picture.width > 1000


def test_nothing_measured_is_nothing_drawn(tmp_path):
    draw({"rows": [], "skipped": []}, tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()
