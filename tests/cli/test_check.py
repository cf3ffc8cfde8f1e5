import json

import torch
import torchvision

SMALL = ("--size", "64", "--batch-size", "2")


def test_a_network_by_name(program):
    done = program("check", "timm:mobilenetv3_small_050", *SMALL, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["probe"]["neutral"]
    assert len(found["layers"]) == 34
    assert all(layer["adapts"] for layer in found["layers"])
    assert "scale and shift" in found["layers"][0]["why"]


def test_weights_tell_the_number_of_classes(program, tmp_path):
    torch.save(torchvision.models.resnet18(num_classes=5).state_dict(), tmp_path / "w.pth")
    done = program("check", "resnet18", "--weights", tmp_path / "w.pth", *SMALL, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["classes"] == 5
    assert "neutral" in program("check", "resnet18", *SMALL, "--method", "adabn").stdout


def test_failures_are_one_message_and_exit_one(program):
    for arguments, hint in {
        ("check", "timm:vit_tiny_patch16_224"): "nothing to adapt",
        ("check", "resnt18"): "did you mean 'resnet18'",
        ("check", "resnet18", "--weights", "none.pt"): "no weights at",
        ("check", "resnet18", "--device", "cuda:7"): "--device",
        ("check", "resnet18", "--option", "lr", *SMALL): "name=value",
        ("check", "resnet18", "--option", "lrr=1", *SMALL): "did you mean 'lr'",
    }.items():
        done = program(*arguments)
        assert done.returncode == 1, arguments
        assert hint in done.stderr, arguments
        assert "Traceback" not in done.stderr
