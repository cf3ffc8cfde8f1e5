"""`domainadaptor run --list` and `--train`: what is done, and what must be trained."""

import json
from types import SimpleNamespace

import pytest

from domainadaptor.cli.run import _duration
from domainadaptor.lab.experiments.spec import read_experiment
from domainadaptor.lab.records.store import Store
from domainadaptor.lab.records.training import TrainingRequest
from tests.cli.small_experiment import ONE, OWN, TEXT, arguments, change

TRAINED = TEXT.replace('checkpoint = "none/{target}.safetensors"', 'train = { dataset = "folders", size = 12 }')


@pytest.fixture
def trained(monkeypatch):
    """The words of trainings that were started; nothing is trained."""
    started = []

    def run(words, **_):
        started.append(words[words.index("domainadaptor") + 1 :])
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr("domainadaptor.cli.run.subprocess.run", run)
    return started


def listed(program, *more):
    (row,) = json.loads(program("run", "--list", "experiments/small.toml", *more, "--json").stdout)
    return row


def test_the_list_counts_what_is_there_and_what_is_done(program, base):
    row = listed(program)
    assert (row["experiment"], row["paper"], row["minutes"]) == ("small", "", None)
    assert (row["runs"], row["done"]) == (2, 0)
    program(*arguments(base, *OWN))
    assert (listed(program)["runs"], listed(program)["done"]) == (2, 2)


def test_records_of_a_network_that_is_gone_are_done_and_it_is_not_trained(program, base, trained):
    (base / "experiments" / "small.toml").write_text(TRAINED)
    program(*arguments(base, *OWN))
    assert listed(program)["done"] == 2
    done = program(*arguments(base, "--train"))
    assert done.returncode == 0, done.stderr
    assert trained == []
    change(base, f"DELETE FROM entries WHERE {ONE}")
    assert listed(program)["done"] == 1
    program(*arguments(base, "--train"))
    assert len(trained) == 1


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
    assert listed(program)["done"] == 2
    (base / "experiments" / "small.toml").write_text(TRAINED.replace("size = 12", "size = 12, epochs = 3"))
    assert listed(program)["done"] == 0
    assert "--epochs 3" in program(*arguments(base)).stderr


def test_the_list_has_the_experiments_of_the_package_in_the_order_of_the_paper(program, base, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    shown = program("run", "--list").stdout
    assert "…" not in shown
    rows = json.loads(program("run", "--list", "--json").stdout)
    assert [row["paper"] for row in rows][:4] == ["Table 1", "Table 2", "Table 3", "Table 3"]
    assert [row["paper"] for row in rows if row["paper"]][-1] == "Figure 7"
    assert not rows[-1]["paper"]
    assert "2.4 hours" in shown
    assert {row["experiment"] for row in rows if row["minutes"] is None} == {"comparison-paper-settings"}


@pytest.mark.parametrize(
    ("minutes", "text"), [(0.1, "1 minute"), (59.4, "59 minutes"), (150, "2.5 hours"), (101087, "70.2 days")]
)
def test_times_are_in_minutes_hours_or_days(minutes, text):
    assert _duration(minutes) == text


def test_trainings_are_estimated_and_made_in_order(program, base, trained):
    more = '[networks.more]\nstart = "mine"\ntrain = { dataset = "folders", epochs = 2 }\n[rows."untouched"]'
    text = TRAINED.replace("train = {", "minutes = 90\ntrain = {").replace('[rows."untouched"]', more)
    (base / "experiments" / "small.toml").write_text(text.replace('network = "mine"', 'network = "more"'))
    done = program(*arguments(base, "--train", "--no-cache"))
    assert done.returncode == 1
    assert "2 networks must be trained first, about 90 minutes for 1 of them" in done.stderr
    assert "an epoch of the first will show it" in done.stderr
    first, second = trained
    where = ["--root", str(base / "pictures"), "--device", "cpu", "--no-cache"]
    assert first == ["train", "folders", "--size", "12", "--seed", "0", "--target", "night", *where]
    assert second[:4] == ["train", "folders", "--epochs", "2"]
    assert second[second.index("--weights") + 1].startswith("pictures-resnet18-12-erm-on-")


def test_a_training_that_fails_ends_the_command(program, base, monkeypatch):
    failed = SimpleNamespace(returncode=1)
    monkeypatch.setattr("domainadaptor.cli.run.subprocess.run", lambda *_, **__: failed)
    (base / "experiments" / "small.toml").write_text(TRAINED)
    done = program(*arguments(base, "--train"))
    assert done.returncode == 1
    assert not (base / "results").exists()


def test_a_list_leaves_a_corrupt_record_where_it_is(program, base):
    program(*arguments(base, *OWN))
    change(base, f"UPDATE entries SET body = substr(body, 1, 99) WHERE {ONE}")
    before = (base / "results" / "results.sqlite").read_bytes()
    assert listed(program)["done"] == 1
    assert (base / "results" / "results.sqlite").read_bytes() == before


def test_mistakes_of_all_files_are_said_at_once(program, base):
    for name in ("bad", "worse"):
        (base / "experiments" / f"{name}.toml").write_text("titel = 1")
    result = program("run", "experiments/bad.toml", "experiments/worse.toml")
    assert result.returncode == 1
    assert "bad.toml" in result.stderr
    assert "worse.toml" in result.stderr
