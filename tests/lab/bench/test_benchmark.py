"""The benchmark measures what it says; nothing here asserts how long anything takes."""

import json
from dataclasses import replace

import pytest
import torch

from domainadaptor.lab.bench import benchmark
from domainadaptor.lab.bench.benchmark import run_bench
from domainadaptor.lab.bench.memory import peak_memory
from domainadaptor.lab.bench.timing import BenchConfig, Timing, time_methods
from tests.conftest import GoldenNet, stir

SMALL = BenchConfig("cifar:resnet20", 4, 16, rounds=3)


def test_every_method_is_timed_beside_the_source_model():
    seen = []
    timings = time_methods(SMALL, stir(GoldenNet()), {"adamixbn": {}, "domainadaptor-t": {"lr": 0.1}}, seen.append)
    assert [timing.method for timing in timings] == ["adamixbn", "domainadaptor-t"]
    for timing in timings:
        assert timing.ratio_low <= timing.ratio <= timing.ratio_high
        assert timing.images_per_second == pytest.approx(4000 / timing.milliseconds)
    assert set(timings[0].phases) == {"first pass", "statistics (in the passes)"}
    assert set(timings[1].phases) == {
        "first pass", "statistics (in the passes)", "backward", "update", "second pass",
    }  # fmt: skip
    # In turn: the source model and each method in every round.
    assert [line.partition(": ")[2] for line in seen[:4]] == [
        "source model", "adamixbn", "domainadaptor-t", "source model",
    ]  # fmt: skip


def test_a_round_that_is_slow_for_both_does_not_change_the_ratio(monkeypatch):
    # The source model, then the method, three rounds of each; the last number is the reset's.
    seconds = iter([1.0, 2.0, 10.0, 20.0, 3.0, 9.0, 0.5])
    monkeypatch.setattr("domainadaptor.lab.bench.timing.timed", lambda job, device: (None, next(seconds)))
    (timing,) = time_methods(SMALL, stir(GoldenNet()), {"adabn": {}}, lambda _: None)
    assert (timing.ratio_low, timing.ratio, timing.ratio_high) == (2.0, 2.0, 3.0)
    assert (timing.source_milliseconds, timing.milliseconds, timing.reset_milliseconds) == (3000.0, 9000.0, 500.0)


def test_a_report_can_be_written_as_json():
    report = run_bench([SMALL], {"adabn": {}, "source": {}}, memory=False, progress=lambda _: None)
    assert json.loads(json.dumps(report)) == report
    assert report["machine"]["torch"] == torch.__version__
    assert [row["method"] for row in report["rows"]] == ["adabn", "source"]


def test_configurations_that_do_not_fit_into_memory_are_skipped(monkeypatch, tmp_path):
    # A method that takes a megabyte per image, on a machine with 50 megabytes to spare: 40 may be used.
    monkeypatch.setattr(benchmark, "peak_memory", lambda config, *_: float(config.batch_size))
    monkeypatch.setattr(benchmark, "available_memory", lambda _: 50e6)
    timing = Timing("adabn", 2.0, 1.0, 2.0, 1.9, 2.1, 500.0, 1.0, 1.0)
    monkeypatch.setattr(benchmark, "time_methods", lambda *_: [timing])
    kept = []
    configs = [replace(SMALL, batch_size=images) for images in (1, 64, 8)]
    report = run_bench(configs, {"adabn": {}}, True, lambda _: None, lambda now: kept.append(len(now["rows"])))
    assert [point["batch_size"] for point in report["skipped"]] == [64]
    assert report["skipped"][0]["reason"] == "needs about 64 MB, but only 40 MB are available"
    assert [row["batch_size"] for row in report["rows"]] == [1, 8]
    assert kept == [1, 1, 2]


@pytest.mark.slow
def test_memory_grows_with_what_is_kept_for_the_backward():
    setting = BenchConfig("cifar:resnet20", 64, 32, rounds=1)
    plain, mixing, stepping = (peak_memory(setting, name, {}) for name in ("", "adamixbn", "domainadaptor-t"))
    if plain is None:
        pytest.skip("this system does not say how much memory a process used")
    assert plain < stepping
    assert mixing < stepping
