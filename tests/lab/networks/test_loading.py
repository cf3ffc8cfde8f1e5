from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from domainadaptor.errors import BadFile, BadOption
from domainadaptor.lab.data.preprocessing import squashed
from domainadaptor.lab.networks.checkpoint import Checkpoint, CheckpointCard, make_network, save_checkpoint
from domainadaptor.lab.networks.loading import load_network
from domainadaptor.lab.networks.pretrained import imagenet_classes
from domainadaptor.lab.networks.weights import WeightsOptions
from domainadaptor.lab.networks.zoo import find_network
from tests.conftest import batch, stir

NAME = "timm:test_resnet"
CARD = CheckpointCard("cifar:resnet20", ("cat", "dog"), squashed(48), head_bias=False, note="for research only")


@pytest.fixture
def checkpoint(tmp_path):
    def write(card=CARD):
        network = stir(make_network(card.network, 2, head_bias=False, norm=card.norm))
        save_checkpoint(tmp_path / "c.safetensors", Checkpoint(card, network.state_dict()))
        return str(tmp_path / "c.safetensors"), network

    return write


def test_a_checkpoint_needs_nothing_else(checkpoint):
    path, network = checkpoint()
    opened = load_network(path, None)
    assert (opened.name, opened.classes, opened.preprocessing) == (CARD.network, CARD.classes, CARD.preprocessing)
    assert opened.notes == ("for research only",)
    assert torch.equal(opened.network(batch(2, 3, 48, 48)), network(batch(2, 3, 48, 48)))
    with pytest.raises(BadOption, match="c.safetensors is a checkpoint.*leave out --weights"):
        load_network(path, "w.pt")
    with pytest.raises(BadOption, match="leave out --classes"):
        load_network(path, None, ["cat", "dog"])
    with pytest.raises(BadOption, match="is a checkpoint.*instead of the network's name, without --weights"):
        load_network("resnet20", path)


def test_another_size_is_noticed_where_the_trained_one_is_known(checkpoint, tmp_path):
    opened = load_network(checkpoint()[0], None)
    assert opened.with_size(None) is opened.with_size(48) is opened
    small = opened.with_size(32)
    assert small.preprocessing == squashed(32)
    assert small.notes[-1] == "these weights were trained on images of side 48, not --size 32"
    assert load_network(NAME, None).with_size(32).notes == ()


def test_preprocessing_that_is_not_the_networks_usual_is_noticed(checkpoint):
    other = replace(CARD, preprocessing=squashed(48, (0.5, 0.5, 0.5)), note="")
    opened = load_network(checkpoint(other)[0], None)
    assert opened.preprocessing.mean == (0.5, 0.5, 0.5)
    assert "mean 0.5 0.5 0.5" in opened.notes[0]
    assert "mean 0.485 0.456 0.406" in opened.notes[0]


def test_weights_say_how_many_classes_there_are(tmp_path):
    path = tmp_path / "w.safetensors"
    save_file(find_network(NAME).build(5).state_dict(), path)
    opened = load_network(NAME, str(path))
    assert opened.classes == ("0", "1", "2", "3", "4")
    assert opened.network(batch(1, 3, 32, 32)).shape == (1, 5)
    with pytest.raises(BadFile, match="predicts 5 classes, but 2 class names were given"):
        load_network(NAME, str(path), ["cat", "dog"])


def test_a_thousand_outputs_of_an_imagenet_network_have_its_names(tmp_path):
    path = tmp_path / "w.pth"
    torch.save({f"module.{k}": t for k, t in find_network(NAME).build(1000).state_dict().items()}, path)
    opened = load_network(NAME, str(path))
    assert opened.classes == imagenet_classes()
    assert opened.notes == ("w.pth has 1000 outputs: assuming the classes of ImageNet; pass --classes for others",)
    mine = [f"kind {k}" for k in range(1000)]
    opened = load_network(NAME, str(path), mine)
    assert opened.classes == tuple(mine)
    assert not opened.notes
    cifar = tmp_path / "cifar.pth"
    torch.save(find_network("resnet20").build(1000).state_dict(), cifar)
    assert load_network("resnet20", str(cifar)).classes[0] == "0"  # not a network of ImageNet


def test_raw_weights_are_given_what_is_said_and_a_note_says_it(tmp_path):
    path = tmp_path / "w.safetensors"
    save_file(find_network("resnet20").build(3).state_dict(), path)
    opened = load_network("resnet20", str(path))
    usual = opened.with_options(WeightsOptions())
    assert usual.preprocessing == opened.preprocessing
    assert usual.preprocessing.sentence() in usual.notes[-1]
    said = opened.with_options(WeightsOptions("squash", 40, (0.4914, 0.4822, 0.4465), (0.2, 0.2, 0.2)))
    assert said.preprocessing == squashed(40, (0.4914, 0.4822, 0.4465), (0.2, 0.2, 0.2))
    assert "both sides to 40" in said.notes[-1]
    assert opened.with_options(WeightsOptions("crop", 64)).preprocessing == replace(
        opened.preprocessing.at(64), squash=False
    )


def test_outputs_are_put_into_the_order_of_the_classes(tmp_path):
    path = tmp_path / "w.safetensors"
    trained = stir(find_network("resnet20").build(3, seed=1))
    save_file(trained.state_dict(), path)
    opened = load_network("resnet20", str(path), ["Alarm Clock", "owl", "cat"])
    ordered = opened.with_class_order(["alarm_clock", "cat", "owl"])
    assert ordered.classes == ("alarm_clock", "cat", "owl")
    x = batch(2, 3, 32, 32)
    torch.testing.assert_close(ordered.network(x), trained(x)[:, [0, 2, 1]])
    assert ordered.with_class_order(["alarm_clock", "cat", "yak"]) is ordered


def test_what_weights_know_themselves_is_not_said(checkpoint):
    opened = load_network(checkpoint()[0], None)
    assert opened.with_options(WeightsOptions()) is opened
    for said, flag in (
        (WeightsOptions(size=32), "--size"),
        (WeightsOptions("squash"), "--resize"),
        (WeightsOptions(std=(1, 1, 1)), "--std"),
    ):
        with pytest.raises(BadOption, match=f"includes its preprocessing and classes: leave out {flag}"):
            opened.with_options(said)
    for wrong in ({"resize": "stretch"}, {"std": (0, 1, 1)}, {"mean": (0.5, 0.5)}, {"size": 0}):
        with pytest.raises(BadOption):
            WeightsOptions(**wrong)


def test_random_weights_are_called_so():
    opened = load_network("resnet20", "none", seed=3)
    assert opened.random
    assert len(opened.classes) == 10
    expected = find_network("resnet20").build(10, seed=3)
    assert torch.equal(opened.network.conv1.weight, expected.conv1.weight)


@pytest.mark.parametrize(
    ("network", "error", "hint"),
    [
        ("none.safetensors", BadFile, "no checkpoint at"),
        ("w.pth", BadOption, "holds weights only. Pass the network's name and --weights w.pth"),
        ("resnet21", BadOption, "did you mean"),
    ],
)
def test_other_words_are_explained(network, error, hint):
    with pytest.raises(error, match=hint):
        load_network(network, None)


def test_a_published_network_has_the_names_of_its_classes(data_root):
    opened = load_network("resnet20", "pretrained", root=data_root)
    assert opened.classes[3] == "cat"
    assert opened.trained_at == 32
    assert not opened.random
