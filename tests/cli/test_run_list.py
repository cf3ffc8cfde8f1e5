"""`domainadaptor run --list` and `--missing`: what is done, and what is not."""

import json
import shlex

from domainadaptor.lab.experiments.spec import read_experiment
from domainadaptor.lab.records.store import Store
from domainadaptor.lab.records.training import TrainingRequest
from tests.cli.small_experiment import ONE, OWN, TEXT, arguments, change

TRAINED = TEXT.replace('checkpoint = "none/{target}.safetensors"', 'train = { dataset = "folders", size = 12 }')


def listed(program, base, *more):
    (row,) = json.loads(program("run", "--list", "--root", base / "pictures", *more, "--json").stdout)
    return row


def test_the_list_says_what_is_there_and_what_is_missing(program, base):
    row = listed(program, base)
    assert row["experiment"] == "small"
    assert (row["runs"], row["done"], row["missing"]) == (2, 0, 2)
    program(*arguments(base, *OWN))
    row = listed(program, base, *OWN)
    assert (row["runs"], row["done"], row["missing"]) == (2, 2, 0)


def test_records_of_a_network_that_is_gone_are_done_and_not_asked_for(program, base):
    (base / "experiments" / "small.toml").write_text(TRAINED)
    assert len(program(*arguments(base, "--missing")).stdout.splitlines()) == 1
    program(*arguments(base, *OWN))
    row = listed(program, base)
    assert (row["runs"], row["done"], row["missing"]) == (2, 2, 0)
    assert program(*arguments(base, "--missing")).stdout == ""
    change(base, f"DELETE FROM entries WHERE {ONE}")
    row = listed(program, base)
    assert (row["runs"], row["done"], row["missing"]) == (2, 1, 1)
    assert len(program(*arguments(base, "--missing")).stdout.splitlines()) == 1


def test_records_of_a_network_that_was_trained_otherwise_are_not_those_of_this_one(program, base):
    (base / "experiments" / "small.toml").write_text(TRAINED)
    program(*arguments(base, *OWN))
    networks = read_experiment(base / "experiments" / "small.toml", base).networks
    trained = networks.request("mine", "night", 0)
    assert isinstance(trained, TrainingRequest)
    with Store(base / "results") as store:
        for record in store.runs().values():
            checkpoint = record.run.checkpoint.model_copy(update={"training": trained})
            run = record.run.model_copy(update={"checkpoint": checkpoint})
            store.write(record.model_copy(update={"run": run}))
    row = listed(program, base)
    assert row["done"] == 2
    (base / "experiments" / "small.toml").write_text(TRAINED.replace("size = 12", "size = 12, epochs = 3"))
    row = listed(program, base)
    assert (row["done"], row["missing"]) == (0, 2)
    (command,) = program(*arguments(base, "--missing")).stdout.splitlines()
    assert "--epochs 3" in command


def test_the_list_is_readable_in_a_narrow_terminal(program, base, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    shown = program("run", "--list", "--root", str(base / "pictures")).stdout
    for word in ("small", "folders: mine", "missing"):
        assert word in shown
    assert "…" not in shown


def test_missing_prints_commands_alone(program, base):
    result = program(*arguments(base, "--missing"))
    assert result.returncode == 0
    assert result.stdout == ""
    assert "none/night.safetensors" in result.stderr
    (base / "experiments" / "small.toml").write_text(TRAINED)
    (line,) = program(*arguments(base, "--missing")).stdout.splitlines()
    place = shlex.join(["--root", str(base / "pictures")])
    assert line == f"domainadaptor train folders --size 12 --seed 0 --target night {place}"


def test_a_list_leaves_a_corrupt_record_where_it_is(program, base):
    program(*arguments(base, *OWN))
    change(base, f"UPDATE entries SET body = substr(body, 1, 99) WHERE {ONE}")
    before = (base / "results" / "results.sqlite").read_bytes()
    row = listed(program, base, *OWN)
    assert row["done"] == 1
    assert (base / "results" / "results.sqlite").read_bytes() == before


def test_mistakes_of_all_files_are_said_at_once_and_a_list_goes_without_them(program, base):
    for name in ("bad", "worse"):
        (base / "experiments" / f"{name}.toml").write_text("titel = 1")
    result = program("run", "experiments/bad.toml", "experiments/worse.toml")
    assert result.returncode == 1
    assert "bad.toml" in result.stderr
    assert "worse.toml" in result.stderr
    result = program("run", "--list", "--root", str(base / "pictures"), "--json")
    assert result.returncode == 3
    assert [row["experiment"] for row in json.loads(result.stdout)] == ["small"]
    assert "titel" in result.stderr


def test_the_file_of_networks_beside_them_is_no_experiment(program, base):
    (base / "experiments" / "networks.toml").write_text('[other]\ncheckpoint = "other.safetensors"\n')
    result = program(*arguments(base, "experiments/networks.toml", *OWN, "--missing"))
    assert result.returncode == 0, result.stderr
    assert "No experiment given" in program("run", "experiments/networks.toml").stderr
