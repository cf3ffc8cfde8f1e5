import json
import shlex

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from domainadaptor.lab.networks.zoo import find_network
from tests.conftest import stir

NAME = "timm:mobilenetv3_small_050"
NETWORK = ("--weights", "w.safetensors", "--classes", "classes.txt", "--size", "32", "--mean", "0.5", "0.5", "0.5")


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "my images"
    root.mkdir()
    rng = np.random.default_rng(0)
    for at in range(20):
        Image.fromarray(rng.integers(0, 255, (40, 50, 3), dtype=np.uint8)).save(root / f"{at}.jpg")
    (root / "broken.jpg").write_bytes(b"\xff\xd8broken")
    torch.manual_seed(0)
    save_file(stir(find_network(NAME).build(3)).state_dict(), tmp_path / "w.safetensors")
    (tmp_path / "classes.txt").write_text("cat\ndog\nbird\n")
    return root


def test_a_page_and_numbers(program, folder, tmp_path):
    done = program("diagnose", NAME, folder, *NETWORK, "--output", "a.html", "--output", "a.json", "--json")
    read = json.loads((tmp_path / "a.json").read_text())
    assert done.returncode == (5 if read["warnings"] else 0), done.stderr
    assert json.loads(done.stdout) == read
    assert read["images"] == 20
    assert read["headline"] in (tmp_path / "a.html").read_text(encoding="utf-8")
    words = shlex.split(read["command"])
    assert words[:4] == ["domainadaptor", "predict", NAME, str(folder)]
    assert words[4:15] == [*NETWORK[:6], "--mean", "0.5", "0.5", "0.5", "--method"]
    assert program(*words[1:]).returncode in (0, 3, 5)


def test_the_terminal_says_what_was_found(program, folder, tmp_path):
    done = program("diagnose", NAME, folder, *NETWORK, "--images", "12")
    assert done.returncode == 5
    assert done.stdout.startswith("Too few images to tell.")
    assert "12 images are few" in done.stderr
    assert "skipped broken.jpg" in done.stderr
    assert (tmp_path / "diagnosis.html").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--output", "a.pdf"), "expected the name of a .html or .json file"),
        (("--output", "none/a.html"), "No folder for --output"),
        (("--output", "a.html", "--images", "0"), "--images"),
    ],
)
def test_mistakes_leave_no_file(program, folder, tmp_path, words, message):
    done = program("diagnose", NAME, folder, *NETWORK, *words)
    assert done.returncode
    assert message in done.stderr
    assert not list(tmp_path.glob("*.html"))
