"""`domainadaptor run` from the command line."""

import io
import json
import shlex
import signal
import sqlite3

import pytest
import torch
from rich.console import Console
from rich.progress import Progress

from domainadaptor.cli.run import _helpers
from domainadaptor.cli.terminal import bar_columns
from domainadaptor.lab.experiments.runner import Runner
from domainadaptor.lab.experiments.spec import read_experiment
from domainadaptor.lab.records.store import Store
from domainadaptor.lab.records.training import TrainingRequest
from tests.lab.experiments.pictures import make_checkpoint, make_pictures

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


def records(base):
    with Store(base / "results", readonly=True) as store:
        return store.runs()


def plan(base, name="small"):
    with Store(base / "results", readonly=True) as store:
        return store.plan(name)


def change(base, statement):
    db = sqlite3.connect(base / "results" / "results.sqlite")
    db.execute(statement)
    db.commit()
    db.close()


ONE = "id = (SELECT MIN(id) FROM entries WHERE kind = 'evaluation')"


def arguments(base, *more):
    return ["run", "experiments/small.toml", "--root", str(base / "pictures"), "--device", "cpu", *more]


OWN = ["--checkpoint", "mine={target}.safetensors"]


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


def test_the_list_says_what_is_there_and_what_is_missing(program, base):
    result = program("run", "--list", "--root", str(base / "pictures"), "--json")
    (row,) = json.loads(result.stdout)
    assert row["experiment"] == "small"
    assert (row["runs"], row["done"], row["missing"]) == (2, 0, 2)
    program(*arguments(base, *OWN))
    result = program("run", "--list", "--root", str(base / "pictures"), *OWN, "--json")
    (row,) = json.loads(result.stdout)
    assert (row["runs"], row["done"], row["missing"]) == (2, 2, 0)


def test_records_of_a_network_that_is_gone_are_done_and_not_asked_for(program, base):
    text = TEXT.replace('checkpoint = "none/{target}.safetensors"', 'train = { dataset = "folders", size = 12 }')
    (base / "experiments" / "small.toml").write_text(text)
    assert len(program(*arguments(base, "--missing")).stdout.splitlines()) == 1
    program(*arguments(base, *OWN))
    (row,) = json.loads(program("run", "--list", "--root", str(base / "pictures"), "--json").stdout)
    assert (row["runs"], row["done"], row["missing"], row["minutes"]) == (2, 2, 0, 0)
    assert program(*arguments(base, "--missing")).stdout == ""
    change(base, f"DELETE FROM entries WHERE {ONE}")
    (row,) = json.loads(program("run", "--list", "--root", str(base / "pictures"), "--json").stdout)
    assert (row["runs"], row["done"], row["missing"]) == (2, 1, 1)
    assert len(program(*arguments(base, "--missing")).stdout.splitlines()) == 1


def test_records_of_a_network_that_was_trained_otherwise_are_not_those_of_this_one(program, base):
    text = TEXT.replace('checkpoint = "none/{target}.safetensors"', 'train = { dataset = "folders", size = 12 }')
    (base / "experiments" / "small.toml").write_text(text)
    program(*arguments(base, *OWN))
    networks = read_experiment(base / "experiments" / "small.toml", base).networks
    trained = networks.request("mine", "night", 0)
    assert isinstance(trained, TrainingRequest)
    with Store(base / "results") as store:
        for record in store.runs().values():
            checkpoint = record.run.checkpoint.model_copy(update={"training": trained})
            run = record.run.model_copy(update={"checkpoint": checkpoint})
            store.write(record.model_copy(update={"run": run}))
    (row,) = json.loads(program("run", "--list", "--root", str(base / "pictures"), "--json").stdout)
    assert row["done"] == 2
    (base / "experiments" / "small.toml").write_text(text.replace("size = 12", "size = 12, epochs = 3"))
    (row,) = json.loads(program("run", "--list", "--root", str(base / "pictures"), "--json").stdout)
    assert (row["done"], row["missing"]) == (0, 2)
    (command,) = program(*arguments(base, "--missing")).stdout.splitlines()
    assert "--epochs 3" in command


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


def test_two_experiments_of_one_name_are_refused(program, base):
    (base / "more").mkdir()
    (base / "more" / "small.toml").write_text(TEXT)
    result = program("run", "more/small.toml", *arguments(base, *OWN)[1:])
    assert result.returncode == 1
    assert "more than one experiment 'small'" in result.stderr


def test_the_list_guesses_minutes_only_where_a_time_is_known(program, base):
    words = ["run", "--list", "--root", str(base / "pictures"), "--json"]
    (row,) = json.loads(program(*words).stdout)
    assert row["minutes"] is None
    (base / "experiments" / "small.toml").write_text(TEXT.replace("[rows", "milliseconds = 10_000\n[rows", 1))
    (row,) = json.loads(program(*words).stdout)
    # 24 images at 10 s: once plainly, and three passes for each of two methods that were never measured
    assert row["minutes"] == 32.0


def test_the_list_counts_published_images_where_the_data_are_not_here(program, base):
    text = TEXT.replace('"folders"', '"pacs"').replace('"night"', '"sketch"')
    text = text.replace("[rows", "milliseconds = 10\n[rows", 1)
    (base / "experiments" / "small.toml").write_text(text + text[text.index("[[table]]") :].replace("One", "Two"))
    (row,) = json.loads(program("run", "--list", "--root", str(base / "pictures"), "--json").stdout)
    # 3,929 images at 10 ms: four times for each of two rows; a second table of the same runs costs nothing
    assert (row["runs"], row["missing"], row["minutes"]) == (2, 2, 5.2)


def test_the_list_is_readable_in_a_narrow_terminal(program, base, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    shown = program("run", "--list", "--root", str(base / "pictures")).stdout
    for word in ("small", "folders: mine", "missing", "time", "unknown"):
        assert word in shown
    assert "…" not in shown


def test_missing_prints_commands_alone(program, base):
    result = program(*arguments(base, "--missing"))
    assert result.returncode == 0
    assert result.stdout == ""
    assert "none/night.safetensors" in result.stderr
    text = TEXT.replace('checkpoint = "none/{target}.safetensors"', 'train = { dataset = "folders", size = 12 }')
    (base / "experiments" / "small.toml").write_text(text)
    (line,) = program(*arguments(base, "--missing")).stdout.splitlines()
    place = shlex.join(["--root", str(base / "pictures")])
    assert line == f"domainadaptor train folders --size 12 --seed 0 --target night {place}"


def test_a_list_leaves_a_corrupt_record_where_it_is(program, base):
    program(*arguments(base, *OWN))
    change(base, f"UPDATE entries SET body = substr(body, 1, 99) WHERE {ONE}")
    before = (base / "results" / "results.sqlite").read_bytes()
    (row,) = json.loads(program("run", "--list", "--root", str(base / "pictures"), *OWN, "--json").stdout)
    assert row["done"] == 1
    assert (base / "results" / "results.sqlite").read_bytes() == before


def test_a_run_without_the_data_keeps_what_the_plan_knew(program, base):
    program(*arguments(base, *OWN))
    before = plan(base)
    (base / "empty").mkdir()
    words = arguments(base, *OWN)
    words[words.index(str(base / "pictures"))] = str(base / "empty")
    result = program(*words)
    assert result.returncode == 0
    assert "2 runs cannot be repeated now and keep their records" in result.stderr
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


def test_an_output_that_is_a_file_is_said(program, base):
    (base / "results").write_text("")
    result = program(*arguments(base, *OWN))
    assert result.returncode == 1
    assert "--output" in result.stderr


def test_a_list_makes_no_folders(program, base):
    (base / "results").mkdir()
    program("run", "--list", "--root", str(base / "pictures"))
    assert not list((base / "results").iterdir())


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


def test_a_narrow_bar_still_says_how_much_is_done_and_everything_that_runs():
    console = Console(file=io.StringIO(), width=80)
    progress = Progress(*bar_columns(), console=console, expand=True)
    said = "comparison: DomainAdaptor-Aug, rate 0.05 on art_painting+cartoon+sketch, testbed, seed 0: 3929 images"
    progress.update(progress.add_task("", total=240), completed=37, description=said)
    console.print(progress.get_renderable())
    shown = console.file.getvalue()
    assert "37/240" in shown
    assert all(word in shown.split() for word in said.split())


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
    assert rows["AdaBN"] == ""
