"""`domainadaptor export`, and `predict` with the file, with and without this package."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import save_file

from domainadaptor.lab.networks.zoo import find_network
from tests.cli.test_predict import folder  # noqa: F401
from tests.conftest import stir
from tests.test_extras import BLOCKED

NAME = "cifar:resnet8"

SCRIPT = Path(__file__).parents[2] / "examples" / "onnxruntime_plain.py"


def rows(path):
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


@pytest.fixture
def checkpoint(program, folder, tmp_path):  # noqa: F811
    save_file(stir(find_network(NAME).build(3)).state_dict(), tmp_path / "w.safetensors")
    done = program(
        "pack", NAME, "--weights", "w.safetensors", "--classes", "classes.txt", "--output", "mine.safetensors"
    )
    assert done.returncode == 0, done.stderr
    return "mine.safetensors"


def test_a_file_predicts_as_the_checkpoint_does_with_and_without_torch(program, folder, checkpoint, tmp_path):  # noqa: F811
    done = program("export", checkpoint, "--method", "adamixbn")
    assert done.returncode == 0, done.stderr
    assert "model.onnx: cifar:resnet8 with adamixbn, opset 18" in done.stdout
    assert "batches of 1, 3, 8, 64 images: relative error" in done.stdout
    expected = program("predict", checkpoint, folder, "--method", "adamixbn", "--output", "torch.csv")
    assert expected.returncode == 0, expected.stderr
    done = program("predict", "model.onnx", folder, "--output", "onnx.csv")
    assert done.returncode == 0, done.stderr
    assert "10 images predicted, 0 skipped: onnx.csv" in done.stdout
    for ours, theirs in zip(rows(tmp_path / "onnx.csv"), rows(tmp_path / "torch.csv"), strict=True):
        assert (ours["file"], ours["adapted_prediction"]) == (theirs["file"], theirs["adapted_prediction"])
        assert float(ours["adapted_confidence"]) == pytest.approx(float(theirs["adapted_confidence"]), abs=1e-4)
        assert ours["source_prediction"] == ours["source_confidence"] == ""
    table = rows(tmp_path / "onnx.csv")
    names = [row["file"] for row in table]
    code = f"import sys; sys.argv = {[str(SCRIPT), 'model.onnx', *names]!r}; exec(open({str(SCRIPT)!r}).read())"
    (folder / "model.onnx").write_bytes((tmp_path / "model.onnx").read_bytes())
    plain = subprocess.run(
        [sys.executable, "-c", BLOCKED, "torch,torchvision,timm,domainadaptor", code],
        capture_output=True, text=True, timeout=120, cwd=folder,
    )  # fmt: skip
    assert plain.returncode == 0, plain.stderr
    for line, row in zip(plain.stdout.splitlines(), table, strict=True):
        name, best, confidence = line.split("\t")
        assert (name, best) == (row["file"], row["adapted_prediction"])
        assert float(confidence) == pytest.approx(float(row["adapted_confidence"]), abs=2e-3)


def test_a_calibrated_checkpoint_is_exported_as_a_plain_model(program, folder, checkpoint, tmp_path):  # noqa: F811
    program("calibrate", checkpoint, folder, "--output", "calibrated.safetensors")
    done = program("export", "calibrated.safetensors", "--method", "source", "--output", "plain.onnx", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["method"], found["opset"], found["checked"]) == ("source", 18, [1, 3, 8, 64])
    assert found["relative_error"] <= 1e-4
    program("predict", "calibrated.safetensors", folder, "--method", "source", "--output", "torch.csv")
    done = program("predict", "plain.onnx", folder, "--output", "onnx.csv", "--batch-size", "1")
    assert done.returncode == 0, done.stderr
    for ours, theirs in zip(rows(tmp_path / "onnx.csv"), rows(tmp_path / "torch.csv"), strict=True):
        assert ours["source_prediction"] == ours["adapted_prediction"] == theirs["adapted_prediction"]


def test_refusals_say_what_to_do_and_leave_no_file(program, folder, checkpoint, tmp_path):  # noqa: F811
    done = program("export", checkpoint, "--method", "tent")
    assert done.returncode == 1
    assert "calibrate" in done.stderr
    done = program("export", checkpoint, "--option", "effort=most")
    assert "several forward passes" in done.stderr
    assert "expected the name of an .onnx file" in program("export", checkpoint, "--output", "model.bin").stderr
    assert "create it first" in program("export", checkpoint, "--output", "none/model.onnx").stderr
    assert not list(tmp_path.glob("*.onnx"))
    (tmp_path / "bad.onnx").write_bytes(b"no network")
    done = program("predict", "bad.onnx", folder)
    assert (done.returncode, "is not a complete ONNX file" in done.stderr) == (1, True)
    assert not (tmp_path / "predictions.csv").exists()


def test_options_that_the_file_fixes_are_refused(program, folder, checkpoint):  # noqa: F811
    assert program("export", checkpoint, "--method", "adabn").returncode == 0
    done = program("predict", "model.onnx", folder, "--size", "32", "--option", "alpha=0.5")
    assert "leave out --size, --option" in done.stderr
    done = program("predict", "model.onnx", folder, "--method", "tent")
    assert "has weights, classes, preprocessing and the method adabn: leave out --method" in done.stderr
    done = program("predict", "model.onnx", folder, "--batch-size", "2")
    assert done.returncode == 5
    assert "warning: the predictions of adabn may be worse than the source model's. A batch of 2" in done.stderr
