import csv
import json

import numpy as np
import pytest
import torch
from PIL import Image

from domainadaptor.lab.networks.checkpoint import load_checkpoint
from domainadaptor.lab.networks.zoo import find_network
from tests.conftest import stir

NAME = "timm:test_resnet"
OPTIONS = ("--classes", "classes.txt", "--size", "64", "--resize", "72", "--mean", "0.5", "0.4", "0.3")


@pytest.fixture
def images(tmp_path):
    root = tmp_path / "images"
    root.mkdir()
    rng = np.random.default_rng(0)
    for at in range(4):
        Image.fromarray(rng.integers(0, 255, (40, 50, 3), dtype=np.uint8)).save(root / f"{at}.jpg")
    torch.save(stir(find_network(NAME).build(3)).state_dict(), tmp_path / "w.pth")
    (tmp_path / "classes.txt").write_text("cat\ndog\nbird\n")
    return root


def test_a_packed_network_needs_no_further_options(program, images, tmp_path):
    done = program("pack", NAME, "--weights", "w.pth", *OPTIONS, "--output", "mine.safetensors")
    assert done.returncode == 0, done.stderr
    assert "mine.safetensors: timm:test_resnet, 3 classes (cat, dog, bird)" in done.stdout
    assert "shorter side to 72 (bilinear), center crop 64, mean 0.5 0.4 0.3" in done.stdout
    assert "w.pth does not include preprocessing; std: the default of timm:test_resnet" in done.stderr
    card = load_checkpoint(tmp_path / "mine.safetensors").card
    assert (card.classes, card.preprocessing.size, card.preprocessing.resize) == (("cat", "dog", "bird"), 64, 72)
    tables = []
    for network in (("mine.safetensors",), (NAME, "--weights", "w.pth", *OPTIONS)):
        shown = program("predict", *network, images, "--method", "adamixbn", "--output", "out.csv")
        assert shown.returncode == 0, shown.stderr
        tables.append(list(csv.reader((tmp_path / "out.csv").read_text().splitlines())))
    assert tables[0] == tables[1]
    assert "(of the checkpoint)" in program("check", "mine.safetensors").stdout


def test_class_names_and_preprocessing_of_config_files_are_packed(program, images, tmp_path):
    config = {"pretrained_cfg": {"input_size": [3, 32, 32], "crop_pct": 0.5}, "label_names": ["a", "b", "c"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = program("pack", NAME, "--weights", "w.pth")
    assert done.returncode == 0, done.stderr
    assert "checkpoint.safetensors: timm:test_resnet, 3 classes (a, b, c)" in done.stdout
    assert "shorter side to 64 (bicubic), center crop 32" in done.stdout
    assert "(from config.json)" in done.stdout
    assert done.stderr == ""


def test_what_cannot_be_packed_is_explained(program, images, tmp_path):
    for arguments, hint in (
        ((NAME,), "No weights given"),
        (("w.pth",), "pass the network's name and --weights w.pth"),
        ((NAME, "--weights", "w.pth", "--output", "mine.pt"), "expected the name of a .safetensors file"),
        ((NAME, "--weights", "w.pth", "--size", "64", "--resize", "60"), "a resize of at least that, got 64 and 60"),
        ((NAME, "--weights", "w.pth", "--crop-pct", "0.9", "--resize", "60"), "pass one of them"),
    ):
        done = program("pack", *arguments)
        assert done.returncode == 1, arguments
        assert hint in done.stderr.replace("\n", " ")
    assert not list(tmp_path.glob("*.safetensors"))
