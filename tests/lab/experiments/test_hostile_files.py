"""Experiment files and records that mean harm: they import no code, and every mistake is one message."""

import hashlib
import json
import sqlite3

import pytest
import torch

from domainadaptor.errors import BadFile
from domainadaptor.lab.experiments.runner import Runner
from domainadaptor.lab.experiments.spec import read_experiment
from domainadaptor.lab.experiments.sweep import Sweep, run_sweep
from domainadaptor.lab.records.store import Store
from domainadaptor.lab.records.store import build as record_of
from domainadaptor.lab.reports.report import build, write
from tests.lab.experiments.small import SILENT, sweep_of
from tests.lab.reports.folder import Folder, planned_row, table

CANARY = "open(__file__ + '.ran', 'w')\ndef touch(*_, **__):\n    pass\n"
CODE = "canary:touch"
FILE = """
title = "x"
[networks.mine]
{network}
[rows.a]
{row}
[[table]]
title = "t"
dataset = "{dataset}"
network = "mine"
domains = ["night"]
{more}
"""
GOOD = {"network": 'network = "resnet20"', "row": 'method = "source"', "dataset": "folders", "more": ""}


@pytest.fixture
def canary(tmp_path, monkeypatch):
    (tmp_path / "canary.py").write_text(CANARY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield
    assert not (tmp_path / "canary.py.ran").exists(), "code was run"


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ("dataset", CODE),
        ("row", f'method = "{CODE}"'),
        ("row", f'measure = "{CODE}"'),
        ("row", f'method = "source"\nprotocol = "{CODE}"'),
        ("more", f'protocol = "{CODE}"'),
        ("more", f'show = "{CODE}"'),
        ("more", f'data_options = {{ root = "{CODE}" }}'),
        ("network", f'network = "{CODE}"'),
        ("network", f'network = "timm:{CODE}"'),
        ("network", f'network = "resnet20"\nweights = "{CODE}"'),
        ("network", f'checkpoint = "{CODE}"'),
        *(("network", f'train = {{ dataset = "{CODE}", {name} = "x" }}') for name in ("network", "algorithm")),
        *(("network", f'train = {{ dataset = "folders", {name} = "{CODE}" }}')
          for name in ("network", "algorithm", "select", "norm", "schedule", "weights")),
        ("network", f'train = {{ dataset = "folders", task = ["{CODE}"] }}'),
    ],
)  # fmt: skip
def test_no_part_of_an_experiment_file_runs_code(tmp_path, canary, part, text):
    path = tmp_path / "x.toml"
    path.write_text(FILE.format(**{**GOOD, part: text}))
    runner = Runner(tmp_path, None, torch.device("cpu"))
    try:
        experiment = read_experiment(path, tmp_path / "runs", dataset=runner.dataset, views=["accuracy"])
    except BadFile:
        return
    sweep = Sweep(experiment, runner)
    assert not sweep.runnable() or all(not cell.id for cell in sweep.cells), "what cannot be found cannot run"


def named_everywhere(record, *paths):
    content = json.loads(record.to_json())
    for path in paths:
        *place, last = path.split(".")
        part = content
        for name in place:
            part = part.setdefault(name, {})
        part[last] = CODE
    return content


def test_no_part_of_a_record_runs_code(tmp_path, canary):
    made = Folder(tmp_path / "results", images=20)
    names = ("dataset", "method", "protocol", "checkpoint.name", "checkpoint.network", "checkpoint.command")
    with Store(tmp_path / "results") as store:
        for name in names:
            content = named_everywhere(made.record(["sketch"], "tent"), f"run.{name}", "command")
            made.add(record_of(content))
        rows = [planned_row(name, {"sketch": [[record]]}) for name, record in made.records.items()]
        made.plan("x", [table("t", rows, ["sketch"], show=view) for view in ("accuracy", "details", "time", CODE)])
        store.write(*made.records.values(), *made.plans)
    write(build(tmp_path / "results"), tmp_path / "out")


@pytest.mark.parametrize(
    "text",
    [
        "title = " + "[" * 5000 + "]" * 5000,
        'title = "x"\nrows = ' + "{ a = " * 5000 + "1" + " }" * 5000,
        "seeds = " + "9" * 5000,
        '[rows.a]\nmethod = "tent"\nlr = ' + "[" * 400 + "]" * 400,
        'title = "\\u0000"\nnetworks = { "\\u0000" = { checkpoint = "\\u0000" } }',
    ],
    ids=["deep list", "deep table", "long number", "deep option", "zero bytes"],
)
def test_a_file_that_is_too_deep_or_too_long_is_one_message(tmp_path, text):
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(BadFile):
        read_experiment(path, tmp_path)


@pytest.mark.parametrize("name", ["a" * 5000, "\\u0000", "/", "."])
def test_a_path_that_the_system_refuses_is_a_reason_not_to_run(tmp_path, name):
    path = tmp_path / "x.toml"
    for key in ('checkpoint = "{}"', 'network = "resnet20"\nweights = "{}"', 'network = "resnet20"\nclasses = "{}"',
                'train = {{ dataset = "folders", weights = "{}" }}'):  # fmt: skip
        path.write_text(FILE.format(**{**GOOD, "network": key.format(name)}))
        runner = Runner(tmp_path, None, torch.device("cpu"))
        try:
            sweep = Sweep(read_experiment(path, tmp_path / "runs", dataset=runner.dataset), runner)
        except BadFile:
            continue
        assert all(cell.missing for cell in sweep.cells)


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO entries VALUES ('evaluation', 7, 'x', 'y')",
        "INSERT INTO claims SELECT id, 'x', 'y' FROM entries",
        "INSERT INTO claims SELECT id, -5, 0 FROM entries",
        "INSERT INTO claims SELECT id, 1e300, 0 FROM entries",
        "UPDATE entries SET body = zeroblob(10)",
        "UPDATE entries SET checksum = 3",
        "UPDATE entries SET kind = 'plan' WHERE kind = 'evaluation'",
        "DROP TABLE corrupt",
        "CREATE TABLE n AS SELECT * FROM entries; DROP TABLE entries; ALTER TABLE n RENAME TO entries; "
        "UPDATE entries SET body = NULL, id = NULL",
        "DROP TABLE entries; CREATE VIEW entries AS SELECT 1 AS kind",
    ],
)
def test_a_database_that_was_tampered_with_is_mended_or_one_message(base, statement):
    with Store(base / "out") as store:
        assert run_sweep(sweep_of(base), store, SILENT) == {}
    db = sqlite3.connect(base / "out" / "results.sqlite")
    db.executescript(statement)
    db.close()
    try:
        with Store(base / "out") as store:
            assert run_sweep(sweep_of(base), store, SILENT) == {}
            assert len(store.runs()) == 4
    except BadFile:  # one message
        pass


def test_a_record_with_other_types_than_a_run_has_is_computed_again(base):
    sweep, store = sweep_of(base), Store(base / "out")
    run_sweep(sweep, store, SILENT)
    record = next(iter(store.runs().values()))
    content = json.loads(record.to_json())
    for path, value in (
        ("run", []), ("scores", {"night": 3}), ("classes", "abc"), ("seconds", {}), ("defaults", None),
        ("environment", 1), ("run.options", {"lr": float("1e999")}), ("took", -1e300),
    ):  # fmt: skip
        *place, last = path.split(".")
        spoiled = json.loads(json.dumps(content))
        part = spoiled[place[0]] if place else spoiled
        part[last] = value
        body = json.dumps(spoiled)
        store._execute("UPDATE entries SET body = ?, checksum = ? WHERE id = ?", body,
                       hashlib.sha256(body.encode()).hexdigest(), record.id)  # fmt: skip
        assert run_sweep(sweep, store, SILENT) == {}
        assert store.run(record.id).scores == record.scores, path
    store.close()
