"""`calibrate` writes what `da.calibrate` returns, as a checkpoint that says where it comes from."""

import csv
import hashlib
import json
import shutil
import time

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import domainadaptor as da
from domainadaptor.lab.data.preprocessing import squashed
from domainadaptor.lab.networks.checkpoint import Checkpoint, CheckpointCard, load_checkpoint, save_checkpoint
from domainadaptor.lab.networks.zoo import find_network
from domainadaptor.tasks.rotation import Rotation
from tests.conftest import stir

CLASSES = ("cat", "dog", "bird")


@pytest.fixture
def images(tmp_path):
    """Twenty images of a dark domain, in two folders."""
    root = tmp_path / "night"
    rng = np.random.default_rng(0)
    for at in range(20):
        place = root / ("a", "b")[at % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 90, (30, 36, 3), dtype=np.uint8)).save(place / f"{at}.png")
    return root


@pytest.fixture
def source(tmp_path):
    torch.manual_seed(0)
    network, head = stir(find_network("resnet20").build(3)).eval(), Rotation(64)
    card = CheckpointCard(
        "cifar:resnet20", CLASSES, squashed(24), sources=("day",), metrics={"accuracy": 90.0}, heads=("rotation",),
        note="research only",
    )  # fmt: skip
    save_checkpoint(
        tmp_path / "day.safetensors", Checkpoint(card, network.state_dict(), {"rotation": head.state_dict()})
    )
    return network, card


def pixels(folder, preprocessing):
    transform = preprocessing.transform()
    return torch.stack([transform(Image.open(path).convert("RGB")) for path in sorted(folder.rglob("*.png"))])


def test_the_checkpoint_is_the_calibrated_network_for_every_loader(program, images, source, tmp_path):
    network, card = source
    done = program("calibrate", "day.safetensors", images, "--output", "out.safetensors")
    assert done.returncode == 0, done.stderr
    expected = da.calibrate(network, pixels(images, card.preprocessing))
    x = torch.randn(5, 3, 24, 24, generator=torch.Generator().manual_seed(1))
    logits = expected(x)
    assert not torch.allclose(logits, network(x), atol=0.05)
    built = load_checkpoint(tmp_path / "out.safetensors").build()
    torch.testing.assert_close(built(x), logits, rtol=1e-4, atol=1e-4)
    tensors = load_file(tmp_path / "out.safetensors")
    plain = find_network("resnet20").build(3).eval()
    plain.load_state_dict({name: t for name, t in tensors.items() if not name.startswith("heads.")})
    torch.testing.assert_close(plain(x), logits, rtol=1e-4, atol=1e-4)
    exported = torch.export.export(built, (x,)).module()
    torch.testing.assert_close(exported(x), logits, rtol=1e-4, atol=1e-4)


def test_other_commands_take_the_checkpoint(program, images, source, tmp_path):
    program("calibrate", "day.safetensors", images, "--output", "out.safetensors")
    expected = da.calibrate(source[0], pixels(images, source[1].preprocessing))
    for method in ("source", "rotation"):  # which uses the head that was trained for it
        done = program("predict", "out.safetensors", images, "--method", method)
        assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((tmp_path / "predictions.csv").read_text().splitlines()))
    confidences = expected(pixels(images, source[1].preprocessing)).softmax(1).max(1).values.tolist()
    assert [float(row["source_confidence"]) for row in rows] == pytest.approx(confidences, abs=1e-4)
    for name, place in (("cat", images / "a"), ("dog", images / "b")):
        shutil.copytree(place, tmp_path / "data" / "night" / name)
    done = program("evaluate", "out.safetensors", "data", "--method", "source")
    assert done.returncode == 0, done.stderr


def test_the_card_says_what_it_was_calibrated_on(program, images, source, tmp_path):
    words = ("calibrate", "day.safetensors", images, "--images", "18", "--share", "0.25", "--output", "out.safetensors")
    assert program(*words).returncode == 0
    card = load_checkpoint(tmp_path / "out.safetensors").card
    found = dict(card.calibration)
    layers = found.pop("layers")
    assert found == {
        "images": 18,
        "folder": "night",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "version": da.__version__,
        "source": "day.safetensors",
        "source_sha256": hashlib.sha256((tmp_path / "day.safetensors").read_bytes()).hexdigest(),
        "share": 0.25,
    }
    assert len(layers) == 19
    assert {layer["share"] for layer in layers.values()} == {0.25}
    assert (card.metrics, card.note, card.sources) == ({}, "research only", ("day",))
    assert str(tmp_path) not in (tmp_path / "out.safetensors").read_bytes().decode("latin-1")


def test_the_summary_is_short_and_repeatable(program, images, source, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    done = program("calibrate", "day.safetensors", images, "--output", "out.safetensors")
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "out.safetensors: cifar:resnet20, calibrated on 20 images"
    assert lines[1].startswith("New statistics: ")
    assert lines[-1] == "Try it: domainadaptor predict out.safetensors IMAGES --method source"
    assert done.stderr == "note: research only\n"
    first = (tmp_path / "out.safetensors").read_bytes()
    found = json.loads(program("calibrate", "day.safetensors", images, "--output", "out.safetensors", "--json").stdout)
    assert (tmp_path / "out.safetensors").read_bytes() == first
    assert (found["images"], found["folder"], found["skipped"]) == (20, "night", {})


def test_few_or_broken_images_tell_by_the_exit_code(program, images, source):
    (images / "a" / "broken.png").write_bytes(b"no image")
    done = program("calibrate", "day.safetensors", images)
    assert done.returncode == 3
    assert "skipped a/broken.png: not a readable image" in done.stderr
    cut = (images / "a" / "0.png").read_bytes()
    (images / "a" / "broken.png").write_bytes(cut[: len(cut) // 2])
    found = json.loads(program("calibrate", "day.safetensors", images, "--json").stdout)
    assert found["images"] == 20
    assert list(found["skipped"]) == ["a/broken.png"]
    done = program("calibrate", "day.safetensors", images, "--images", "5")
    assert done.returncode == 5
    assert "5 images are few for the statistics of a domain" in done.stderr


def test_mistakes_are_explained_and_write_nothing(program, images, source, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    cut = (images / "a" / "0.png").read_bytes()
    (tmp_path / "broken" / "x.png").write_bytes(cut[: len(cut) // 2])
    held = sorted(tmp_path.rglob("*"))
    for words, hint in [
        (("day.safetensors", "none"), "No folder 'none'"),
        (("day.safetensors", "empty"), "No readable image"),
        (("day.safetensors", "broken"), "None of the images in 'broken' can be read"),
        (("day.safetensors", images, "--output", "out.pt"), "expected the name of a .safetensors file"),
        (("day.safetensors", images, "--output", "none/out.safetensors"), "create it first"),
        (("day.safetensors", images, "--output", "./day.safetensors"), "is the network itself"),
        (("resnet20", images), "No weights given for 'resnet20'"),
        (("none.safetensors", images), "no checkpoint at"),
    ]:
        done = program("calibrate", *words)
        assert done.returncode == 1, hint
        assert hint in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
        assert sorted(tmp_path.rglob("*")) == held
    assert program("calibrate", "day.safetensors", images, "--share", "2").returncode == 2


def test_a_network_without_batch_norm_is_refused(program, images, tmp_path):
    card = CheckpointCard("timm:test_vit", CLASSES, squashed(160))
    network = find_network("timm:test_vit").build(3)
    save_checkpoint(tmp_path / "vit.safetensors", Checkpoint(card, network.state_dict()))
    done = program("calibrate", "vit.safetensors", images)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "batch norm" in done.stderr.lower()
    assert not (tmp_path / "calibrated.safetensors").exists()
