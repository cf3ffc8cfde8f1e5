"""`domainadaptor run` from the command line."""

import json

import pytest

from tests.experiments.pictures import make_checkpoint, make_pictures

TEXT = """
title = "Small"
[networks.mine]
checkpoint = "none/{target}.safetensors"
[rows."untouched"]
method = "source"
[rows."AdaBN"]
method = "adabn"
[[table]]
title = "One"
dataset = "folders"
network = "mine"
domains = ["night"]
"""


@pytest.fixture
def base(tmp_path, monkeypatch):
    monkeypatch.setenv("DOMAINADAPTOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    make_pictures(tmp_path / "pictures")
    make_checkpoint(tmp_path / "night.safetensors")
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "small.toml").write_text(TEXT)
    return tmp_path


def arguments(base, *more):
    return ["run", "experiments/small.toml", "--root", str(base / "pictures"), "--device", "cpu", *more]


OWN = ["--checkpoint", "mine={target}.safetensors"]


def test_all_cells_are_run_and_shown(program, base):
    result = program(*arguments(base, *OWN))
    assert result.returncode == 0, result.stderr
    assert "untouched" in result.stdout
    assert "[2/2] small: adabn on night" in result.stderr
    assert len(list((base / "results" / "records").glob("*.json"))) == 2
    assert (base / "results" / "plans" / "small.json").is_file()


def test_again_it_runs_nothing(program, base):
    program(*arguments(base, *OWN))
    result = program(*arguments(base, *OWN))
    assert result.returncode == 0
    assert "[1/2]" not in result.stderr


def test_without_the_network_it_says_so_and_runs_nothing(program, base):
    result = program(*arguments(base))
    assert result.returncode == 1
    assert "no checkpoint at" in result.stderr
    assert not list((base / "results" / "records").glob("*.json"))


def test_the_list_says_what_is_there_and_what_is_missing(program, base):
    result = program("run", "--list", "--root", str(base / "pictures"), "--json")
    (row,) = json.loads(result.stdout)
    assert row["experiment"] == "small"
    assert (row["cells"], row["done"], row["missing"]) == (2, 0, 2)
    program(*arguments(base, *OWN))
    result = program("run", "--list", "--root", str(base / "pictures"), *OWN, "--json")
    (row,) = json.loads(result.stdout)
    assert (row["cells"], row["done"], row["missing"]) == (2, 2, 0)


def test_a_damaged_record_is_made_again_and_said(program, base):
    program(*arguments(base, *OWN))
    path = sorted((base / "results" / "records").glob("*.json"))[0]
    path.write_text(path.read_text()[:100])
    result = program(*arguments(base, *OWN))
    assert result.returncode == 0
    assert "damaged" in result.stderr
    assert json.loads(path.read_text())["id"] == path.stem


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run"], "which experiment"),
        (["run", "experiments/smal.toml"], "--list"),
        (["run", "experiments/small.toml", "--checkpoint", "mine"], "NAME=FILE"),
        (["run", "experiments/small.toml", "--checkpoint", "min=x.safetensors"], "mine"),
    ],
)
def test_mistakes_are_explained(program, base, words, said):
    result = program(*words)
    assert result.returncode == 1
    assert said in result.stderr
