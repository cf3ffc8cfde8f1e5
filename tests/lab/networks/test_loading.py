import json

import pytest
import timm
import torch
from safetensors.torch import save_file

import domainadaptor
from domainadaptor.errors import BadFile, BadOption
from domainadaptor.lab.data.preprocessing import Preprocessing, squashed
from domainadaptor.lab.data.sets.imagenet import imagenet_classes
from domainadaptor.lab.networks.checkpoint import Checkpoint, CheckpointCard, make_network, save_checkpoint
from domainadaptor.lab.networks.inputs import InputOptions
from domainadaptor.lab.networks.loading import load_network
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
    with pytest.raises(BadOption, match="c.safetensors includes weights: leave out --weights"):
        load_network(path, "w.pt")
    with pytest.raises(BadOption, match="leave out --classes"):
        load_network(path, None, InputOptions(classes=("cat", "dog")))
    with pytest.raises(BadOption, match="is a checkpoint.*instead of the network's name, without --weights"):
        load_network("resnet20", path)


def test_another_size_is_noticed_where_the_trained_one_is_known(checkpoint):
    path = checkpoint()[0]
    assert load_network(path, None, InputOptions(size=48)).notes == ("for research only",)
    small = load_network(path, None, InputOptions(size=32))
    assert small.preprocessing == squashed(32)
    assert small.notes[-1] == "these weights were trained on images of side 48, not --size 32"
    assert small.origin == "--size; otherwise of the checkpoint"
    assert load_network(NAME, None, InputOptions(size=32)).notes == ()


def test_weights_say_how_many_classes_there_are(tmp_path):
    path = tmp_path / "w.safetensors"
    save_file(find_network(NAME).build(5).state_dict(), path)
    opened = load_network(NAME, str(path))
    assert opened.classes == ("0", "1", "2", "3", "4")
    assert opened.network(batch(1, 3, 32, 32)).shape == (1, 5)
    with pytest.raises(BadFile, match="predicts 5 classes, but 2 class names were given"):
        load_network(NAME, str(path), InputOptions(classes=("cat", "dog")))


def test_a_thousand_outputs_of_an_imagenet_network_have_its_names(tmp_path):
    path = tmp_path / "w.pth"
    torch.save({f"module.{k}": t for k, t in find_network(NAME).build(1000).state_dict().items()}, path)
    opened = load_network(NAME, str(path))
    assert opened.classes == imagenet_classes()
    assert opened.notes[0] == "w.pth has 1000 outputs: assuming the classes of ImageNet; pass --classes for others"
    mine = tuple(f"kind {k}" for k in range(1000))
    opened = load_network(NAME, str(path), InputOptions(36, 32, (0.5,) * 3, (0.5,) * 3, mine))
    assert opened.classes == mine
    assert not opened.notes
    cifar = tmp_path / "cifar.pth"
    torch.save(find_network("resnet20").build(1000).state_dict(), cifar)
    assert load_network("resnet20", str(cifar)).classes[0] == "0"  # not a network of ImageNet


def test_the_user_decides_how_images_are_prepared_and_defaults_are_named(tmp_path):
    path = tmp_path / "w.safetensors"
    save_file(find_network("resnet20").build(3).state_dict(), path)
    usual = load_network("resnet20", str(path))
    assert usual.origin == "the default of cifar:resnet20"
    note = "w.safetensors does not include preprocessing; size, resize, mean, std: the default of cifar:resnet20"
    assert usual.notes[-1].startswith(note)
    sized = load_network("resnet20", str(path), InputOptions(size=64))
    assert sized.preprocessing.size == 64
    assert sized.origin == "--size; otherwise the default of cifar:resnet20"
    assert "preprocessing; resize, mean, std: the default" in sized.notes[-1]
    colors = {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2, 0.2, 0.2)}
    given = load_network("resnet20", str(path), InputOptions("squash", 40, **colors))
    assert given.preprocessing == squashed(40, *colors.values())
    assert given.notes == ()


def test_a_checkpoint_includes_what_is_not_to_be_given(checkpoint):
    path = checkpoint()[0]
    for given, flag in (
        (InputOptions("squash"), "--resize"),
        (InputOptions(crop_pct=0.9), "--crop-pct"),
        (InputOptions(std=(1, 1, 1)), "--std"),
    ):
        with pytest.raises(BadOption, match=f"includes its preprocessing and classes: leave out {flag}"):
            load_network(path, None, given)


def test_a_folder_of_timm_is_a_network(tmp_path):
    trained = stir(timm.create_model("test_resnet", num_classes=3).eval())
    config = {"input_size": [3, 48, 48], "crop_pct": 0.75, "mean": [0.1, 0.2, 0.3], "interpolation": "bilinear"}
    timm.models.save_for_hf(trained, tmp_path, model_config={"pretrained_cfg": config}, safe_serialization=True)
    content = json.loads((tmp_path / "config.json").read_text())
    content["pretrained_cfg"] |= config
    (tmp_path / "config.json").write_text(json.dumps(content))
    opened = load_network(str(tmp_path))
    assert opened.name == "timm:test_resnet"
    x = batch(2, 3, 48, 48)
    assert torch.equal(opened.network(x), trained(x))
    preprocessing = opened.preprocessing
    assert (preprocessing.size, preprocessing.resize, preprocessing.mean) == (48, 64, (0.1, 0.2, 0.3))
    assert opened.origin == "from config.json"
    assert opened.notes == ()
    beside = load_network(NAME, str(tmp_path / "model.safetensors"), InputOptions(size=96))
    assert (beside.preprocessing.size, beside.preprocessing.resize) == (96, 128)


@pytest.fixture
def huggingface(tmp_path):
    """A model folder as transformers writes it."""
    transformers = pytest.importorskip("transformers")
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", id2label={0: "cat", 1: "owl"}
    )
    network = stir(transformers.ResNetForImageClassification(config).eval())
    network.save_pretrained(tmp_path)
    processor = {"do_resize": True, "size": {"shortest_edge": 48}, "crop_pct": 0.875, "resample": 3}
    processor |= {"do_normalize": True, "image_mean": [0.5] * 3, "image_std": [0.25] * 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
    return tmp_path, network


def test_a_folder_of_hugging_face_is_a_network(huggingface):
    folder, trained = huggingface
    opened = load_network(str(folder))
    assert (opened.name, opened.classes) == ("huggingface:resnet", ("cat", "owl"))
    assert opened.preprocessing == Preprocessing(48, 54, (0.5,) * 3, (0.25,) * 3, "bicubic")
    x = batch(2, 3, 48, 48)
    assert torch.equal(opened.network(x).logits, trained(x).logits)
    assert domainadaptor.adapt(opened.network, "adamixbn")(x).shape == (2, 2)


def test_a_config_of_a_larger_network_is_refused_before_it_is_built(huggingface):
    path = huggingface[0] / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"hidden_sizes": [8, 10**7]}))
    with pytest.raises(BadFile, match=r"describes \d[\d,]+ numbers, but the file has"):
        load_network(str(huggingface[0]))


def test_a_packed_network_is_the_loaded_one(huggingface, tmp_path):
    path = tmp_path / "packed.safetensors"
    torch.save(stir(find_network(NAME).build(2)).state_dict(), tmp_path / "w.pth")
    own = load_network(NAME, str(tmp_path / "w.pth"), InputOptions(110, 96, classes=("a", "b")))
    for loaded in (own, load_network(str(huggingface[0]), inputs=InputOptions(size=32))):
        save_checkpoint(path, loaded.to_checkpoint())
        opened = load_network(str(path))
        assert (opened.classes, opened.preprocessing) == (loaded.classes, loaded.preprocessing)
        x = batch(2, 3, 32, 32)
        source, packed = (domainadaptor.adapt(each.network, "source")(x) for each in (loaded, opened))
        assert torch.equal(source, packed)


def test_folders_that_are_no_models_are_explained(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(BadFile, match=r"No weights in .* expected model.safetensors"):
        load_network(str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(BadFile, match="names no network"):
        load_network(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(BadOption, match="cannot build an image classifier of model_type 'bert'"):
        load_network(str(tmp_path))


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
    assert opened.preprocessing.size == 32
    assert not opened.random
