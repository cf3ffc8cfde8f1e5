"""ONNX files are timed against the network's own file."""

from dataclasses import replace

import pytest

from domainadaptor.lab.bench.benchmark import by_config, run_bench
from tests.lab.bench.test_benchmark import SMALL


def test_methods_that_can_be_exported_are_timed_beside_the_plain_file():
    seen = []
    config = replace(SMALL, network="cifar:resnet8", engine="onnxruntime")
    report = run_bench([config], {"adamixbn": {}, "tent": {}, "auto": {}}, memory=True, progress=seen.append)
    (rows,) = by_config(report).values()
    assert list(by_config(report)) == ["resnet8 in onnxruntime, 4 x 16²"]
    assert [row["method"] for row in rows] == ["adamixbn", "auto"]
    for row in rows:
        assert row["ratio_low"] <= row["ratio"] <= row["ratio_high"]
        assert row["images_per_second"] == pytest.approx(4000 / row["milliseconds"])
    rounds = [line.partition(": ")[2] for line in seen if "round" in line]
    assert rounds == ["source model", "adamixbn", "auto"] * SMALL.rounds
