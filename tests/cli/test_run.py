"""`domainadaptor run` from the command line."""

import json
import signal

import pytest
import torch

from domainadaptor.cli.run import _helpers
from domainadaptor.lab.experiments.runner import Runner
from tests.cli.small_experiment import ONE, OWN, TEXT, arguments, change, plan, records


def test_all_cells_are_run_and_shown(program, base):
    result = program(*arguments(base, *OWN))
    assert result.returncode == 0, result.stderr
    assert "untouched" in result.stdout
    assert "[2/2] small: AdaBN on night" in result.stderr
    assert len(records(base)) == 2
    assert plan(base).title == "Small"


def test_again_it_runs_nothing(program, base):
    program(*arguments(base, *OWN))
    result = program(*arguments(base, *OWN))
    assert result.returncode == 0
    assert "[1/2]" not in result.stderr


def test_jobs_are_the_same_command_on_a_share_of_the_cores(program, base, monkeypatch):
    started = []

    class Process:
        def __init__(self, words, env, **_):
            started.append((words, env))

        def terminate(self):
            started.append("ended")

        wait = terminate

    monkeypatch.setattr("domainadaptor.cli.run.subprocess.Popen", Process)
    threads = torch.get_num_threads()
    result = program(*arguments(base, *OWN, "--jobs", "2", "--no-cache"))
    assert result.returncode == 0, result.stderr
    assert torch.get_num_threads() == threads
    (words, env), *ends = started
    assert ends == ["ended", "ended"]
    assert env["OMP_NUM_THREADS"] == str(max(1, threads // 2))
    change(base, "DELETE FROM entries")
    # What it was told to run does the whole work by itself, and starts nobody else.
    result = program(*words[words.index("domainadaptor") + 1 :])
    assert result.returncode == 0, result.stderr
    assert len(records(base)) == 2
    assert len(started) == 3
    assert not (base / "cache" / "images").exists()


def test_without_the_network_it_says_so_and_runs_nothing(program, base):
    result = program(*arguments(base))
    assert result.returncode == 1
    assert "no checkpoint at" in result.stderr
    assert not records(base)


def test_a_corrupt_record_is_reported_and_recomputed(program, base):
    program(*arguments(base, *OWN))
    before = records(base)
    change(base, f"UPDATE entries SET body = substr(body, 1, 100) WHERE {ONE}")
    result = program(*arguments(base, *OWN))
    assert result.returncode == 0
    assert f"Record {min(before)} is corrupt and will be recomputed" in result.stderr
    after = records(base)
    assert {name: record.scores for name, record in after.items()} == {
        name: record.scores for name, record in before.items()
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run"], "No experiment given"),
        (["run", "experiments/smal.toml"], "--list"),
        (["run", "--list", "nowhere"], "nowhere"),
        (["run", "table-99"], "No experiment 'table-99'"),
        (["run", "experiments/small.toml", "--checkpoint", "mine"], "NAME=FILE"),
        (["run", "experiments/small.toml", "--checkpoint", "min=x.safetensors"], "mine"),
    ],
)
def test_mistakes_are_explained(program, base, words, said):
    result = program(*words)
    assert result.returncode == 1
    assert said in result.stderr


def test_names_are_no_markup(program, base):
    (base / "pictures" / "night").rename(base / "pictures" / "[red]")
    (base / "own.safetensors").write_bytes((base / "night.safetensors").read_bytes())
    text = TEXT.replace('"night"', '"[red]"').replace('"One"', '"[/b] one"').replace('."AdaBN"', '."[/i]"')
    (base / "experiments" / "small.toml").write_text(text)
    result = program(*arguments(base, "--checkpoint", "mine=own.safetensors", "--output", "[red] results"))
    assert result.returncode == 0, result.stderr
    for part in ("[red]", "[/b] one", "[/i]", "[red] results"):
        assert part in result.stdout


def test_an_experiment_that_cannot_run_does_not_stop_the_others(program, base):
    other = TEXT.replace("networks.mine", "networks.lost").replace('"mine"', '"lost"').replace("none/", "lost/")
    (base / "experiments" / "another.toml").write_text(other)
    result = program("run", "experiments/another.toml", *arguments(base)[1:], "--device", "cpu")
    assert result.returncode == 1
    assert "another cannot run" in result.stderr
    assert "small cannot run" in result.stderr
    words = arguments(base, "--json")[1:]
    given = TEXT.replace("none/{target}", "{target}")
    (base / "experiments" / "small.toml").write_text(given)
    result = program("run", "experiments/another.toml", *words)
    assert result.returncode == 3, result.stderr
    assert list(json.loads(result.stdout)) == ["another", "small"]
    assert len(records(base)) == 2
    ((run,),) = plan(base, "another").tables[0].rows[0].cells["night"]
    assert run.id == ""
    assert "no checkpoint" in run.missing


def test_two_experiments_of_one_name_are_refused(program, base):
    (base / "more").mkdir()
    (base / "more" / "small.toml").write_text(TEXT)
    result = program("run", "more/small.toml", *arguments(base, *OWN)[1:])
    assert result.returncode == 1
    assert "more than one experiment 'small'" in result.stderr


def test_a_run_without_the_data_keeps_what_the_plan_knew(program, base):
    program(*arguments(base, *OWN))
    before = plan(base)
    (base / "empty").mkdir()
    words = arguments(base, *OWN)
    words[words.index(str(base / "pictures"))] = str(base / "empty")
    result = program(*words)
    assert result.returncode == 0
    assert "2 runs cannot be repeated now; records are kept" in result.stderr
    assert "untouched" in result.stdout
    runs = [[run.id for run in table.runs()] for plan in (before, plan(base)) for table in plan.tables]
    assert runs[0] == runs[1]


def test_helpers_end_with_a_run_that_is_told_to(monkeypatch):
    ended = []

    class Process:
        def __init__(self, *_, **__):
            pass

        def terminate(self):
            ended.append("told")

        def wait(self):
            ended.append("gone")

    monkeypatch.setattr("domainadaptor.cli.run.subprocess.Popen", Process)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as raised, _helpers(2, ["run"]):
        signal.raise_signal(signal.SIGTERM)
    assert raised.value.code == 128 + signal.SIGTERM
    assert ended == ["told", "gone"]
    assert signal.getsignal(signal.SIGTERM) == before


SWEPT = """
title = "Swept"
[networks.mine]
checkpoint = "none/{target}.safetensors"
[rows."Mixed, as asked"]
method = "adamixbn"
[[table]]
title = "One"
dataset = "folders"
network = "mine"
domains = ["night"]
sweep = { option = "alpha", values = [0.3, 0.7] }
"""


def test_a_cell_is_called_by_its_row_and_its_swept_value(program, base):
    (base / "experiments" / "small.toml").write_text(SWEPT)
    result = program(*arguments(base, *OWN))
    assert "[1/2] small: Mixed, as asked, alpha 0.3 on night: " in result.stderr
    assert "[2/2] small: Mixed, as asked, alpha 0.7 on night: " in result.stderr


def test_an_interrupted_run_shows_the_table_so_far(program, base, monkeypatch):
    measure = Runner.run
    begun = []

    def interrupted(self, cell, *more):
        begun.append(cell)
        if len(begun) == 2:
            raise KeyboardInterrupt
        return measure(self, cell, *more)

    monkeypatch.setattr(Runner, "run", interrupted)
    result = program(*arguments(base, *OWN))
    assert result.returncode == 130
    rows = {
        line.split("│")[1].strip(): line.split("│")[2].strip() for line in result.stdout.splitlines() if "│" in line
    }
    assert rows["untouched"].replace(".", "").isdigit()
    assert rows["AdaBN"] == "missing"
