import json

import torch
import torchvision

from domainadaptor.lab.data.preprocessing import squashed
from domainadaptor.lab.networks.checkpoint import Checkpoint, CheckpointCard, make_network, save_checkpoint
from tests.conftest import stir

SMALL = ("--size", "64", "--batch-size", "2")


def test_a_network_by_name(program):
    done = program("check", "timm:mobilenetv3_small_050", *SMALL, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["neutral"]
    assert len(found["layers"]) == 34
    assert all(layer["adapts"] for layer in found["layers"])
    assert found["layers"][0]["why"] == "statistics"


def test_weights_tell_the_number_of_classes(program, tmp_path):
    torch.save(torchvision.models.resnet18(num_classes=5).state_dict(), tmp_path / "w.pth")
    done = program("check", "resnet18", "--weights", tmp_path / "w.pth", *SMALL, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["classes"] == 5
    assert "neutral" in program("check", "resnet18", *SMALL, "--method", "adabn").stdout


def test_a_network_without_batch_norms_is_checked_with_a_method_that_adapts_it(program):
    """What Python adapts is not refused."""
    tiny = ("timm:vit_tiny_patch16_224", "--size", "224", "--batch-size", "2")
    done = program("check", *tiny, "--method", "tent")
    assert done.returncode == 0, done.stderr
    assert "Wrapping is neutral" in done.stdout
    assert "25 of 25 norm layers adapt." in done.stdout
    found = json.loads(program("check", *tiny, "--method", "tent", "--json").stdout)
    assert found["neutral"]


def test_equal_layers_share_a_row(program):
    shown = program("check", "resnet20", "--batch-size", "2").stdout
    assert "19: bn1 … layer3.2.bn2" in shown
    assert shown.count("BatchNorm2d") == 1
    assert "No weights given" in shown


def test_failures_are_one_message_and_exit_one(program):
    for arguments, hint in {
        ("check", "timm:vit_tiny_patch16_224"): "no batch normalization",
        ("check", "resnt18"): "did you mean 'resnet18'",
        ("check", "resnet18", "--weights", "none.pt"): "no weights at",
        ("check", "resnet18", "--device", "cuda:7"): "--device",
        ("check", "resnet18", "--option", "lr", *SMALL): "name=value",
        ("check", "resnet18", "--method", "tent", "--option", "lrr=1", *SMALL): "did you mean 'lr'",
    }.items():
        done = program(*arguments)
        assert done.returncode == 1, arguments
        assert hint in done.stderr, arguments
        assert "Traceback" not in done.stderr


def write_checkpoint(path, norm="batch"):
    network = stir(make_network("resnet20", 3, head_bias=False, norm=norm))
    card = CheckpointCard(
        "cifar:resnet20", ("cat", "dog", "bird"), squashed(24), head_bias=False, norm=norm, note="research only"
    )
    save_checkpoint(path, Checkpoint(card, network.state_dict()))


def test_a_checkpoint_is_checked_as_it_was_trained(program, tmp_path):
    write_checkpoint(tmp_path / "c.safetensors")
    done = program("check", "c.safetensors", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["network"], found["classes"], found["preprocessing"]["size"]) == ("cifar:resnet20", 3, 24)
    assert found["notes"] == ["research only"]
    assert len(found["layers"]) == 19
    assert all(layer["adapts"] for layer in found["layers"])
    other = program("check", "c.safetensors", "--size", "16")
    assert other.returncode == 0, other.stderr
    assert "trained on images of side 24, not --size 16" in other.stderr
    assert "No weights given" not in other.stdout
    refused = program("check", "c.safetensors", "--weights", "w.pt")
    assert refused.returncode == 1
    assert "leave out --weights" in refused.stderr


def test_instance_aware_layers_are_named_with_what_to_use(program, tmp_path):
    write_checkpoint(tmp_path / "c.safetensors", norm="iabn")
    done = program("check", "c.safetensors")
    assert done.returncode == 1
    for words in ("InstanceAwareBatchNorm2d corrects each image", "'bn1'", "16 more", "use the method note"):
        assert words in done.stderr


def test_published_weights_are_checked(program, data_root):
    done = program("check", "resnet20", "--weights", "pretrained", "--root", data_root, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["neutral"]
