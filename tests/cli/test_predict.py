import csv
import json

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import domainadaptor as da
from domainadaptor.lab.data.preprocessing import squashed
from domainadaptor.lab.networks.checkpoint import Checkpoint, CheckpointCard, make_network, save_checkpoint
from domainadaptor.lab.networks.zoo import find_network
from domainadaptor.methods.arm import LearnedLoss
from domainadaptor.tasks.jigsaw import Jigsaw
from domainadaptor.tasks.rotation import Rotation
from tests.conftest import stir

NAME = "timm:mobilenetv3_small_050"


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "my images"
    rng = np.random.default_rng(0)
    for kind in ("cat", "dog"):
        (root / kind).mkdir(parents=True)
        for at in range(5):
            Image.fromarray(rng.integers(0, 255, (40, 50, 3), dtype=np.uint8)).save(root / kind / f"{at}.jpg")
    torch.manual_seed(0)
    network = stir(find_network(NAME).build(3))
    save_file(network.state_dict(), tmp_path / "w.safetensors")
    (tmp_path / "classes.txt").write_text("cat\ndog\nbird\n")
    return root


def predict(program, folder, *more):
    return program(
        "predict", NAME, "--weights", "w.safetensors", "--classes", "classes.txt", folder,
        "--method", "domainadaptor-t", "--output", "out.csv", "--size", "64", "--batch-size", "4", *more,
    )  # fmt: skip


def rows(path):
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def test_a_folder_becomes_a_table(program, folder, tmp_path):
    done = predict(program, folder)
    assert done.returncode == 0, done.stderr
    table = rows(tmp_path / "out.csv")
    assert [row["file"] for row in table] == [f"{kind}/{at}.jpg" for kind in ("cat", "dog") for at in range(5)]
    for row in table:
        assert row["source_prediction"] in ("cat", "dog", "bird")
        assert 1 / 3 <= float(row["adapted_confidence"]) <= 1
        assert row["skipped"] == ""
    assert "10 images predicted" in done.stdout
    assert "center crop 64" in done.stdout
    first = (tmp_path / "out.csv").read_bytes()
    predict(program, folder)
    assert (tmp_path / "out.csv").read_bytes() == first


def test_predictions_that_look_worse_have_an_exit_code(program, folder):
    words = "--method", "adabn", "--batch-size", "1"
    done = predict(program, folder, *words)
    assert done.returncode == 5
    warning = "warning: the predictions of adabn may be worse than the source model's. A batch of 1 is too small"
    assert done.stderr.splitlines()[-1].startswith(warning)
    assert done.stderr.count("too small") == 1
    assert "A batch of 1" in json.loads(predict(program, folder, *words, "--json").stdout)["warnings"][0]
    done = predict(program, folder, *words, "--option", "min_batch=5")
    assert done.returncode == 0
    assert "smaller than min_batch=5" in done.stderr


def test_raw_weights_are_given_images_as_it_is_said(program, folder):
    said = ["--resize", "squash", "--mean", "0.4914", "0.4822", "0.4465", "--std", "0.2", "0.2", "0.2"]
    found = json.loads(predict(program, folder, *said, "--json").stdout)
    assert {name: found["preprocessing"][name] for name in ("size", "resize", "squash", "mean", "std")} == {
        "size": 64, "resize": 64, "squash": True, "mean": [0.4914, 0.4822, 0.4465], "std": [0.2, 0.2, 0.2],
    }  # fmt: skip
    assert found["notes"] == []
    shown = predict(program, folder, "--resize", "70").stdout
    assert "shorter side to 70 (bicubic), center crop 64" in shown
    assert "(--resize, --size; otherwise the default of timm:mobilenetv3_small_050)" in shown


def test_the_table_of_an_earlier_run_is_no_image(program, folder):
    for _ in range(2):
        done = predict(program, folder, "--output", str(folder / "out.csv"), "--json")
        assert json.loads(done.stdout)["skipped"] == 0


def test_the_seed_reaches_the_method(program, folder, tmp_path):
    tables = []
    for seed in ("seed=0", "seed=1"):
        predict(program, folder, "--method", "domainadaptor-aug", "--option", "lr=1", "--seed", "5", "--option", seed)
        tables.append((tmp_path / "out.csv").read_bytes())
    assert tables[0] != tables[1]
    predict(program, folder, "--method", "domainadaptor-aug", "--option", "lr=1", "--seed", "5")
    asked = (tmp_path / "out.csv").read_bytes()
    predict(program, folder, "--method", "domainadaptor-aug", "--option", "lr=1", "--seed", "5", "--option", "seed=5")
    assert (tmp_path / "out.csv").read_bytes() == asked


def test_bad_images_are_listed_and_tell_by_the_exit_code(program, folder, tmp_path):
    (folder / "cat" / "broken.jpg").write_bytes(b"no image")
    (folder / "dog" / "notes.txt").write_text("hello")
    done = predict(program, folder, "--json")
    assert done.returncode == 3
    found = json.loads(done.stdout)
    assert found["predicted"] == 10
    assert found["skipped"] == 2
    table = {row["file"]: row for row in rows(tmp_path / "out.csv")}
    assert len(table) == 12
    assert "unknown format" in table["cat/broken.jpg"]["skipped"]
    (folder / "cat" / "broken.jpg").unlink()
    assert predict(program, folder).returncode == 0


def test_mistakes_are_explained_and_write_nothing(program, folder, tmp_path):
    (tmp_path / "two.txt").write_text("cat\ndog\n")
    (tmp_path / "empty").mkdir()
    base = {"--weights": "w.safetensors", "--classes": "classes.txt", "--output": "out.csv", "--size": "64"}
    for change, where, hint in [
        ({"--weights": "none.pt"}, folder, "no weights at"),
        ({"--classes": "two.txt"}, folder, "predicts 3 classes, but 2 class names were given (cat, dog)"),
        ({"--method": "tnt"}, folder, "unknown method 'tnt'"),
        ({"--method": "tent", "--option": "lr=-1"}, folder, "at least 0"),
        ({"--output": "none/out.csv"}, folder, "create it first"),
        ({}, tmp_path / "empty", "no files"),
        ({}, tmp_path / "none", "No folder"),
    ]:
        options = [word for pair in {**base, **change}.items() for word in pair]
        done = program("predict", NAME, where, *options)
        assert done.returncode == 1, hint
        assert hint in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
        assert not (tmp_path / "out.csv").exists()


def test_a_folder_without_images_fails_but_lists_them(program, tmp_path, folder):
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "a.jpg").write_bytes(b"x")
    done = predict(program, bad)
    assert done.returncode == 1
    assert "None of the 1 files" in done.stderr
    assert "skipped a.jpg" in done.stderr
    assert not (tmp_path / "out.csv").exists()


@pytest.fixture
def checkpoint(tmp_path):
    def write(norm="batch"):
        network = stir(make_network("resnet20", 3, head_bias=False, norm=norm))
        own = squashed(24, (0.4, 0.4, 0.4), (0.2, 0.3, 0.2))
        card = CheckpointCard(
            "cifar:resnet20", ("cat", "dog", "bird"), own, head_bias=False, norm=norm, note="research only"
        )
        save_checkpoint(tmp_path / "c.safetensors", Checkpoint(card, network.state_dict()))
        return network, own

    return write


def test_a_checkpoint_knows_the_rest(program, folder, tmp_path, checkpoint):
    network, own = checkpoint()
    done = program("predict", "c.safetensors", folder, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["network"] == "cifar:resnet20"
    assert found["preprocessing"]["mean"] == [0.4, 0.4, 0.4]
    assert found["notes"][0] == "research only"
    with torch.no_grad():
        for row in rows(tmp_path / "predictions.csv"):
            image = own.transform()(Image.open(folder / row["file"]).convert("RGB"))[None]
            confidence, best = network(image).softmax(1).max(1)
            assert row["source_prediction"] == ("cat", "dog", "bird")[int(best)]
            assert float(row["source_confidence"]) == pytest.approx(float(confidence), abs=1e-4)


def test_a_checkpoint_at_another_size_is_noticed(program, folder, checkpoint):
    checkpoint()
    done = program("predict", "c.safetensors", folder, "--size", "32")
    assert done.returncode == 0, done.stderr
    assert "note: research only" in done.stderr
    assert "note: these weights were trained on images of side 24, not --size 32" in done.stderr
    assert "both sides to 32" in done.stdout
    assert "--size" not in program("predict", "c.safetensors", folder, "--size", "24").stderr


def test_an_instance_aware_checkpoint_predicts_as_it_is(program, folder, checkpoint):
    checkpoint("iabn")
    done = program("predict", "c.safetensors", folder)
    assert done.returncode == 1
    assert "use the method note" in done.stderr
    assert program("predict", "c.safetensors", folder, "--method", "source").returncode == 0


def with_heads(path, **heads):
    network = stir(make_network("resnet20", 3, head_bias=False, norm="batch"))
    card = CheckpointCard("cifar:resnet20", ("cat", "dog", "bird"), squashed(24), head_bias=False, heads=tuple(heads))
    trained = Checkpoint(card, network.state_dict(), {name: head.state_dict() for name, head in heads.items()})
    save_checkpoint(path, trained)
    return network, trained


def test_trained_heads_reach_the_methods_that_need_them(program, folder, tmp_path):
    torch.manual_seed(0)
    heads = {"rotation": Rotation(64), "jigsaw": Jigsaw(64), "learned_loss": LearnedLoss(3)}
    network, trained = with_heads(tmp_path / "c.safetensors", **heads)
    images = torch.stack(
        [
            trained.card.preprocessing.transform()(Image.open(path).convert("RGB"))
            for path in sorted(folder.rglob("*.jpg"))
        ]
    )
    for method, option, head in [
        ("rotation", "task", "rotation"),
        ("jigsaw", "task", "jigsaw"),
        ("arm", "learned_loss", "learned_loss"),
    ]:
        assert trained.options_for(method).keys() == {option}
        expected = da.adapt(network, method, **{option: heads[head]}, lr=0.5)
        order = torch.randperm(10, generator=torch.Generator().manual_seed(0))
        answers = expected(images[order]).softmax(1).max(1).values[order.argsort()]
        done = program("predict", "c.safetensors", folder, "--method", method, "--option", "lr=0.5")
        assert done.returncode == 0, done.stderr
        found = [float(row["adapted_confidence"]) for row in rows(tmp_path / "predictions.csv")]
        assert found == pytest.approx(answers.tolist(), abs=1e-4)
        assert program("check", "c.safetensors", "--method", method).returncode == 0
    assert trained.options_for("tent") == {}
    done = program("predict", "c.safetensors", folder, "--method", "domainadaptor.methods.self_supervised:rotation")
    assert done.returncode == 0, done.stderr


def test_a_checkpoint_without_the_head_says_how_to_train_one(program, folder, tmp_path):
    with_heads(tmp_path / "c.safetensors", rotation=Rotation(64))
    for method, hint in [("jigsaw", "--task jigsaw"), ("arm", "--algorithm arm")]:
        for words in (("predict", "c.safetensors", folder), ("check", "c.safetensors")):
            done = program(*words, "--method", method)
            assert done.returncode == 1
            assert hint in done.stderr
            assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("c.safetensors", "--weights", "w.safetensors"), "leave out --weights"),
        (("c.safetensors", "--classes", "classes.txt"), "leave out --classes"),
        (("w.safetensors",), "holds weights only. Pass the network's name"),
        (("none.safetensors",), "no checkpoint at"),
        (("c.safetensors", "--resize", "squash"), "leave out --resize"),
        ((NAME,), "No weights given for"),
        ((NAME, "--weights", "c.safetensors"), "Pass it instead of the network's name"),
        ((NAME, "--weights", "pretrained"), "no published weights of timm:mobilenetv3_small_050"),
        (("resnet18", "--weights", "pretrained", "--root", "."), "no published weights of torchvision:resnet18 at"),
    ],
)
def test_wrong_combinations_are_explained(program, folder, checkpoint, tmp_path, monkeypatch, arguments, hint):
    monkeypatch.delenv("DOMAINADAPTOR_DATA", raising=False)
    checkpoint()
    done = program("predict", *arguments, folder)
    assert done.returncode == 1
    assert hint in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "predictions.csv").exists()


def test_published_weights_name_what_they_see(program, tmp_path, data_root):
    (tmp_path / "ships").mkdir()
    for at, path in enumerate(sorted((data_root / "cifar10-jpeg" / "test" / "ship").iterdir())[:12]):
        (tmp_path / "ships" / f"{at}.jpg").write_bytes(path.read_bytes())
    done = program("predict", "resnet20", "ships", "--weights", "pretrained", "--root", data_root, "--method", "source")
    assert done.returncode == 0, done.stderr
    assert sum(row["source_prediction"] == "ship" for row in rows(tmp_path / "predictions.csv")) >= 8


@pytest.mark.parametrize("method", ["eata", "adabn-source-and-test"])
def test_source_images_reach_the_methods_that_need_them(program, folder, checkpoint, tmp_path, method):
    network, own = checkpoint()
    known = tmp_path / "known"
    (known / "deep").mkdir(parents=True)
    rng = np.random.default_rng(1)
    for at in range(6):
        Image.fromarray(rng.integers(100, 255, (30, 30, 3), dtype=np.uint8)).save(known / "deep" / f"{at}.png")
    (known / "notes.txt").write_text("no image")

    def read(place):
        paths = sorted(path for path in place.rglob("*.*") if path.suffix != ".txt")
        return torch.stack([own.transform()(Image.open(path).convert("RGB")) for path in paths])

    images = read(folder)
    # One batch each, in which the order makes no difference.
    given = {"source_images": read(known), "target_images": images}
    options = {} if method == "adabn-source-and-test" else {"lr": 0.5, "margin": 1.0, "eps": 1.0, "predict": "after"}
    if method == "eata":
        del given["target_images"]
    expected = da.adapt(network, method, **given, **options)(images).softmax(1).max(1).values
    words = [word for name, value in options.items() for word in ("--option", f"{name}={value}")]
    done = program("predict", "c.safetensors", folder, "--method", method, "--source-images", known, *words)
    assert done.returncode == 0, done.stderr
    found = [float(row["adapted_confidence"]) for row in rows(tmp_path / "predictions.csv")]
    assert found == pytest.approx(expected.tolist(), abs=1e-4)
    assert program("check", "c.safetensors", "--method", method).returncode == 0


def test_source_images_that_are_missing_or_of_no_use_are_explained(program, folder, checkpoint, tmp_path):
    checkpoint()
    (tmp_path / "empty").mkdir()
    for words, hint in [
        (("--method", "eata"), "--source-images DIR"),
        (("--method", "adabn-source-and-test"), "--source-images DIR"),
        (("--method", "tent", "--source-images", folder), "leave out --source-images"),
        (("--method", "eata", "--source-images", "none"), "--source-images: No folder 'none'"),
        (("--method", "eata", "--source-images", "empty"), "--source-images: No readable image among the 0 files"),
    ]:
        done = program("predict", "c.safetensors", folder, *words)
        assert done.returncode == 1
        assert hint in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
        assert not (tmp_path / "predictions.csv").exists()
