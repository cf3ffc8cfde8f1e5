"""Training from the command line, on small pictures of one's own."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from PIL import Image

from domainadaptor.lab.data.preprocessing import squashed
from domainadaptor.lab.data.registry import open_dataset
from domainadaptor.lab.networks.checkpoint import load_checkpoint
from domainadaptor.lab.networks.zoo import find_network
from domainadaptor.lab.training.recipe import TrainingRecipe
from domainadaptor.lab.training.trainer import Trainer, TrainingWorkspace

SMALL = ["--network", "resnet20", "--weights", "none", "--size", "12", "--epochs", "2", "--batch-size", "16",
         "--lr", "0.05", "--head-lr", "1", "--device", "cpu"]  # fmt: skip


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Three domains with names of all kinds; one lacks a class, one has a broken file."""
    monkeypatch.setenv("DOMAINADAPTOR_CACHE", str(tmp_path / "cache"))
    base = tmp_path / "my pictures"
    rng = np.random.default_rng(0)
    for tint, domain in enumerate(["day light", "nacht", "été"]):
        for at, kind in enumerate(["cat", "big dog", "鳥"]):
            if domain == "nacht" and kind == "鳥":
                continue
            folder = base / domain / kind
            folder.mkdir(parents=True)
            for number in range(10):
                pixels = rng.integers(0, 90, (14, 16, 3))
                pixels[:: at + 1] += 60 + 30 * tint
                Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")
    (base / "nacht" / "cat" / "broken.jpg").write_bytes(b"no image")
    return base


def test_each_domain_is_left_out_in_turn(program, root, tmp_path):
    done = program("train", "folders", "--root", root, *SMALL, "--json")
    assert done.returncode == 3, done.stderr  # an image could not be read
    records = json.loads(done.stdout)
    assert [list(record["target_accuracy"]) for record in records] == [["day light"], ["nacht"], ["été"]]
    first = records[0]
    assert first["recipe"]["sources"] == ["nacht", "été"]
    assert "nacht/cat/broken.jpg" in first["skipped"]
    assert first["splits"].startswith("a tenth of each class")
    assert str(tmp_path) not in json.dumps({k: v for k, v in first.items() if k != "checkpoint"})
    saved = load_checkpoint(tmp_path / first["checkpoint"])
    assert saved.card.classes == ("big dog", "cat", "鳥")
    assert saved.card.preprocessing.size == 12
    assert saved.card.sources == ("nacht", "été")
    assert saved.card.metrics["accuracy"] == first["source_validation"]["accuracy"]
    assert saved.build()(torch.zeros(2, 3, 12, 12)).shape == (2, 3)


def test_the_same_command_finds_what_was_trained(program, root):
    command = ["train", "folders", "--root", root, *SMALL, "--target", "nacht", "--json"]
    first, second = (json.loads(program(*command).stdout)[0] for _ in range(2))
    assert second == first
    other = json.loads(program(*command[:-1], "--seed", "1", "--json").stdout)[0]
    assert other["checkpoint"] != first["checkpoint"]


def test_chosen_sources(program, root):
    done = program("train", "folders", "--root", root, *SMALL, "--source", "été", "--json")
    record = json.loads(done.stdout)[0]
    assert record["recipe"]["sources"] == ["été"]
    assert set(record["target_accuracy"]) == {"day light", "nacht"}


def test_tasks_are_saved_with_the_network(program, root, tmp_path):
    done = program("train", "folders", "--root", root, *SMALL, "--target", "nacht", "--task", "rotation", "--json")
    saved = load_checkpoint(tmp_path / json.loads(done.stdout)[0]["checkpoint"])
    assert saved.card.heads == ("rotation",)
    assert saved.heads["rotation"]["head.weight"].shape == (4, 64)
    found = program(
        "predict", json.loads(done.stdout)[0]["checkpoint"], root / "nacht" / "big dog", "--method", "rotation"
    )
    assert found.returncode == 0, found.stderr


def test_networks_of_other_kinds_are_rebuilt(program, root, tmp_path):
    for more in (["--norm", "iabn"], ["--algorithm", "arm", "--option", "variant=cml"], ["--head-bias"]):
        done = program("train", "folders", "--root", root, *SMALL, "--target", "nacht", *more, "--json")
        assert done.returncode == 0, done.stderr
        record = json.loads(done.stdout)[0]
        network = load_checkpoint(tmp_path / record["checkpoint"]).build()
        assert network(torch.zeros(2, 3, 12, 12)).shape == (2, 3)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["folders", "--target", "nact"], "did you mean 'nacht'"),
        (["folders", "--source", "nacht", "--target", "nacht"], "never trained on"),
        (["folder"], "did you mean 'folders'"),
        (["folders", "--algorithm", "irm"], "did you mean 'erm'"),
        (["folders", "--network", "resnet19"], "unknown network"),
        (["folders", "--option", "beta=2"], "has no option 'beta'"),
        (["folders", "--select", "swad", "--select-option", "ration=1"], "did you mean 'ratio'"),
        (["folders", "--task", "jigsw"], "did you mean 'jigsaw'"),
        (["pacs"], "art_painting"),
    ],
)
def test_mistakes_are_explained(program, root, arguments, hint):
    done = program("train", *SMALL, *arguments, "--root", root)
    assert done.returncode == 1
    assert hint in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_missing_published_weights_say_where_they_are_expected(program, root, monkeypatch):
    monkeypatch.delenv("DOMAINADAPTOR_DATA", raising=False)
    done = program("train", "folders", "--root", root, "--network", "resnet18", "--size", "32", "--epochs", "1")
    assert done.returncode == 1
    assert "resnet18.safetensors" in done.stderr
    assert "--weights none" in done.stderr


def _epochs_done(folder) -> int:
    return sum(len(path.read_text().splitlines()) for path in folder.glob("runs/*/log.jsonl"))


@pytest.mark.slow
def test_killed_after_any_epoch_it_ends_with_the_same_weights(root, tmp_path):
    command = [sys.executable, "-m", "domainadaptor", "train", "folders", "--root", str(root), *SMALL,
               "--epochs", "12", "--target", "nacht", "--select", "swad", "--json"]  # fmt: skip

    def result(name):
        done = subprocess.run([*command, "--output", str(tmp_path / name)], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)[0]

    whole = result("whole")
    for epochs in (0, 1, 3, 4):  # killed when so many are done, wherever it is in the next
        running = subprocess.Popen(
            [*command, "--output", str(tmp_path / "killed")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while running.poll() is None and _epochs_done(tmp_path / "killed") < epochs:
            time.sleep(0.005)
        assert running.poll() is None, "it ended before it could be killed"
        os.kill(running.pid, signal.SIGKILL)
        running.wait()
    killed = result("killed")
    one, other = (load_checkpoint(tmp_path / record["checkpoint"]).tensors for record in (whole, killed))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_run_goes_on_from_another(program, root, tmp_path):
    command = ["train", "folders", "--root", root, *SMALL, "--target", "nacht", "--json"]
    first = json.loads(program(*command).stdout)[0]
    name = os.path.basename(os.path.dirname(first["checkpoint"]))
    records = [
        json.loads(program(*command, "--weights", start, "--lr", "1e-30").stdout)[0]
        for start in (name, first["checkpoint"])
    ]
    assert records[0] == records[1]
    assert records[0]["started_from"] == name
    one, other = (load_checkpoint(tmp_path / record["checkpoint"]).tensors for record in (first, records[0]))
    torch.testing.assert_close(one["linear.weight"], other["linear.weight"])  # the head is kept
    done = program("train", "folders", "--root", root, *SMALL, "--target", "été", "--weights", name)
    assert done.returncode == 1
    assert "not trained on the target domain" in done.stderr
    (record,) = json.loads(program(*command, "--weights", name, "--data-option", "seed=1").stdout)
    assert "another split" in record["note"]


def test_a_file_of_weights_is_the_same_however_it_is_written(program, root, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    torch.save(find_network("resnet20").build(10, seed=4).state_dict(), tmp_path / "aka.th")
    shutil.copy(tmp_path / "aka.th", tmp_path / "elsewhere" / "other.th")
    command = ["train", "folders", "--root", root, *SMALL, "--target", "nacht", "--json"]
    files = ("aka.th", "./aka.th", tmp_path / "aka.th", "elsewhere/other.th")
    records = [json.loads(program(*command, "--weights", file).stdout)[0] for file in files]
    assert len({record["checkpoint"] for record in records}) == 1
    assert {record["recipe"]["weights"] for record in records} == {"aka.th"}
    torch.save(find_network("resnet20").build(10, seed=5).state_dict(), tmp_path / "aka.th")
    (other,) = json.loads(program(*command, "--weights", "aka.th").stdout)
    assert other["checkpoint"] != records[0]["checkpoint"]


def test_weights_that_may_have_seen_the_target_are_noted(program, root, tmp_path):
    first = program("train", "folders", "--root", root, *SMALL, "--target", "nacht", "--json")
    start = ["--weights", json.loads(first.stdout)[0]["checkpoint"]]
    copied = shutil.copytree(root, tmp_path / "copied")
    Image.new("RGB", (14, 16), "red").save(copied / "nacht" / "cat" / "one more.png")
    command = ["train", "folders", "--root", copied, *SMALL, "--target", "été", *start]
    shown = program(*command).stderr
    (record,) = json.loads(program(*command, "--json").stdout)
    said = "the start weights were trained on a domain named été in 'my pictures'"
    assert said in record["note"]
    assert said in shown.replace("\n", " ")
    assert load_checkpoint(tmp_path / record["checkpoint"]).card.note == record["note"]
    (other,) = json.loads(
        program("train", "folders", "--root", copied, *SMALL, "--target", "nacht", *start, "--json").stdout
    )
    assert other["recipe"]["sources"] == ["day light", "été"]
    assert other["note"] == ""


def test_a_damaged_record_is_explained(program, root, tmp_path):
    command = ["train", "folders", "--root", root, *SMALL, "--target", "nacht", "--json"]
    (first,) = json.loads(program(*command).stdout)
    path = (tmp_path / first["checkpoint"]).parent / "record.json"
    for damaged in (path.read_text()[:99], "[]", '{"recipe": {}}'):
        path.write_text(damaged)
        done = program(*command)
        assert done.returncode == 1
        assert "record.json' is corrupt" in done.stderr.replace("\n", "")
        assert "Traceback" not in done.stderr
    path.unlink()
    (again,) = json.loads(program(*command).stdout)
    assert again["target_accuracy"] == first["target_accuracy"]


def test_validation_images_are_shuffled(root):
    """What adapts to a batch must not find one class after the other, as the files lie."""
    dataset = open_dataset("folders", root)
    recipe = TrainingRecipe(dataset="folders", network="resnet20", size=12)
    trainer = Trainer(recipe, dataset, TrainingWorkspace(torch.device("cpu"), None, root, None))
    ((_, labels),) = trainer._batches(trainer._images("nacht", squashed(12)), "test")()
    assert labels.tolist() != sorted(labels.tolist())


def test_odd_names_are_shown_as_they_are(program, root):
    (root / "nacht").rename(root / "[red]")
    done = program("train", "folders", "--root", root, *SMALL, "--source", "[red]", "--source", "été")
    assert "without day light" in done.stderr
    assert "[red]+été" in done.stdout.replace("\n", "")
    done = program("train", "folders", "--root", root, *SMALL, "--target", "[red]")
    assert "without [red]" in done.stderr


def test_a_few_damaged_images_are_no_reason_to_stop(program, root, tmp_path):
    for name in ("0.png", "1.png", "2.png"):
        (root / "nacht" / "cat" / name).write_bytes(b"damaged")
    command = ["train", "folders", "--root", root, *SMALL, "--target", "été", "--batch-size", "2", "--json"]
    done = [program(*command, "--output", "cached"), program(*command, "--output", "plain", "--no-cache")]
    records = [json.loads(run.stdout)[0] for run in done]
    assert [run.returncode for run in done] == [3, 3]
    assert len(records[0]["unreadable"]) == 4
    assert set(records[1]["unreadable"]) <= set(records[0]["unreadable"])
    one, other = (load_checkpoint(tmp_path / record["checkpoint"]).tensors for record in records)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_changed_images_make_another_run(program, root):
    command = ["train", "folders", "--root", root, *SMALL, "--target", "nacht", "--json"]
    first = json.loads(program(*command).stdout)[0]
    Image.new("RGB", (60, 60), "red").save(root / "été" / "cat" / "0.png")
    assert json.loads(program(*command).stdout)[0]["checkpoint"] != first["checkpoint"]


def test_what_cannot_be_trained_is_said_before_the_work(program, root, tmp_path):
    lonely = tmp_path / "lonely"
    (lonely / "a" / "x").mkdir(parents=True)
    (lonely / "b" / "x").mkdir(parents=True)
    for folder in (lonely / "a" / "x", lonely / "b" / "x"):
        for at in range(4):
            Image.new("RGB", (9, 9), (at * 40, 0, 0)).save(folder / f"{at}.png")
    few = tmp_path / "few"
    for kind in ("x", "y"):
        (few / "a" / kind).mkdir(parents=True)
        (few / "b" / kind).mkdir(parents=True)
        for at in range(5):
            Image.new("RGB", (9, 9), (at * 40, 0, 0)).save(few / "a" / kind / f"{at}.png")
        Image.new("RGB", (9, 9)).save(few / "b" / kind / "only.png")
    unread = tmp_path / "unread"
    shutil.copytree(few / "a", unread / "a")
    shutil.copytree(few / "a", unread / "b")
    held = [example.name for example in open_dataset("folders", unread).domain("b").select("val")]
    for name in held:
        (unread / "b" / name).write_bytes(b"damaged")
    for arguments, hint in [
        (["--root", lonely], "expected two or more"),
        (["--root", unread, "--target", "a"], f"none of the {len(held)} validation images can be read"),
        (["--root", few, "--target", "a"], "none for validation"),
        (["--root", root, "--network", "googlenet", "--size", "40"], "instead of logits"),
        (["--root", root, "--algorithm", "fsdcl", "--option", "stage=linear"], "gives a map"),
        (["--root", root, "--network", "resnet18", "--size", "16", "--batch-size", "2", "--algorithm", "mldg"],
         "1 images per step from each of 2 domains"),
    ]:  # fmt: skip
        done = program("train", "folders", *SMALL, *arguments)
        assert done.returncode == 1, (arguments, done.stdout)
        assert hint in done.stderr, done.stderr
        assert "Traceback" not in done.stderr


def test_another_process_at_work_is_noticed(program, root, tmp_path):
    from domainadaptor.lab.files import owned

    command = ["train", "folders", "--root", root, *SMALL, "--target", "nacht", "--json"]
    checkpoint = json.loads(program(*command).stdout)[0]["checkpoint"]
    with owned(tmp_path / os.path.dirname(checkpoint)):
        done = program(*command)
    assert done.returncode == 1
    assert "Another process uses" in done.stderr
