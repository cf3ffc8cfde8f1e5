"""Train a network, run an experiment with it, and report: real records all the way."""

import gzip
import json

import pytest

from domainadaptor.lab.records.store import EXPORT, Store
from tests.lab.experiments.pictures import make_pictures

SMALL = "experiments/small.toml"
EXPERIMENT = """
title = "Small"
about = "A network that was trained a minute ago."
[networks.mine]
minutes = 200
train = { dataset = "folders", network = "resnet20", weights = "none", size = 12, epochs = 1, batch_size = 12, lr = 0.01, head_lr = 1 }
[rows."source model"]
method = "source"
[rows."Tent"]
method = "tent"
lr = 1
[rows."Tent again"]
method = "tent"
lr = 1.0
[rows."norms"]
measure = "classifier-norms"
[rows."variance"]
measure = "statistics-variance"
[[table]]
title = "Accuracy"
dataset = "folders"
network = "mine"
domains = ["night"]
batch_size = 8
rows = ["source model", "Tent", "Tent again"]
[[table]]
title = "Classifier norms"
dataset = "folders"
network = "mine"
domains = ["night"]
rows = ["norms"]
[[table]]
title = "Variance"
dataset = "folders"
network = "mine"
domains = ["night"]
rows = ["variance"]
"""  # noqa: E501


@pytest.fixture
def base(tmp_path, monkeypatch):
    monkeypatch.setenv("DOMAINADAPTOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DOMAINADAPTOR_DATA", str(make_pictures(tmp_path / "pictures")))
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "small.toml").write_text(EXPERIMENT)
    return tmp_path


def test_train_run_report(program, base):
    done = program("run", SMALL)
    assert done.returncode == 1
    assert "1 network must be trained first, about 3.3 hours" in done.stderr
    done = program("run", SMALL, "--device", "cpu", "--export", "--train")
    assert done.returncode == 0, done.stderr
    assert "[1/1] domainadaptor train folders" in done.stderr
    assert "Tent again" in done.stdout
    with Store(base / "results", pytest.fail) as store:
        runs, (plan,), (trained,), (manifest,) = store.runs(), store.plans(), store.trainings(), store.manifests()
    assert len(runs) == 4, "lr = 1 and lr = 1.0 are the same run"
    assert {run.id for table in plan.tables for run in table.runs()} == set(runs)
    assert {record.run.data for record in runs.values()} == {manifest.fingerprint} == {trained.recipe.data}
    assert not any(record.failed for record in runs.values())
    (row,) = json.loads(program("run", "--list", SMALL, "--json").stdout)
    assert (row["runs"], row["done"]) == (4, 4)

    done = program("report", "results", "--output", "report")
    assert done.returncode == 0, done.stderr
    tent = next(record for record in runs.values() if record.run.method == "tent")
    (score,) = tent.scores.values()
    text = (base / "report" / "small.md").read_text()
    assert f"{100 * score.right / score.images:.1f}" in text
    assert "Tent again" in text
    assert "Classifier norms" in text

    # What was exported is the same results folder, without the network, the data and the database.
    lines = gzip.decompress((base / "results" / EXPORT).read_bytes()).splitlines()
    assert len(lines) == 4 + 3
    (base / "copy").mkdir()
    (base / "results" / EXPORT).rename(base / "copy" / EXPORT)
    (base / "pictures").rename(base / "gone")
    (row,) = json.loads(program("run", "--list", SMALL, "--output", "copy", "--json").stdout)
    assert (row["runs"], row["done"]) == (4, 4)
    (base / "gone").rename(base / "pictures")  # a figure shows test images
    done = program("report", "copy", "--output", "again")
    assert done.returncode == 0, done.stderr
    assert (base / "again" / "small.md").read_text() == text
