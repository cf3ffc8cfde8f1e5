import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

import domainadaptor
from domainadaptor.errors import BadFile, BadOption
from domainadaptor.lab.data.preprocessing import squashed
from domainadaptor.lab.networks import checkpoint as module
from domainadaptor.lab.networks.checkpoint import (
    Checkpoint,
    CheckpointCard,
    is_checkpoint,
    load_checkpoint,
    make_network,
    save_checkpoint,
)
from domainadaptor.lab.networks.context import ContextNetwork
from domainadaptor.norms.instance_aware import InstanceAwareBatchNorm2d
from tests.conftest import batch, stir

CLASSES = ("dog", "elephant", "giraffe")


def card(**changes) -> CheckpointCard:
    whole = CheckpointCard(
        "cifar:resnet20", CLASSES, squashed(32), False, "batch", 0, "pacs", "seeded", ("photo", "art_painting"), 3,
        {"lr": 1e-3, "sources": ["photo", "art_painting"], "options": {"tasks": ["rotation"]}},
        {"accuracy": 93.1, "domains": {"photo": 96.0}}, ("rotation",), "for research only",
    )  # fmt: skip
    return replace(whole, **changes)


def heads() -> dict[str, dict[str, torch.Tensor]]:
    torch.manual_seed(5)
    return {"rotation": {"head.weight": torch.randn(4, 64)}}


def trained(norm: str = "batch") -> nn.Module:
    return stir(make_network("resnet20", 3, head_bias=False, norm=norm, seed=1))


@pytest.fixture
def path(tmp_path) -> Path:
    path = tmp_path / "c.safetensors"
    save_checkpoint(path, Checkpoint(card(), trained().state_dict(), heads()))
    return path


def edited(path: Path, card=lambda entry: entry, tensors=lambda held: held) -> Path:
    """The same file with another card or other tensors."""
    with safe_open(path, framework="pt") as file:
        entry = json.loads(file.metadata()["domainadaptor"])
    held = load_file(path)
    entry = card(entry)
    text = entry if isinstance(entry, str) else json.dumps(entry)
    save_file(tensors(held), path, metadata={"domainadaptor": text})
    return path


@pytest.mark.parametrize("norm", ["batch", "iabn"])
def test_what_is_written_is_what_is_read(norm, tmp_path):
    path, network = tmp_path / "c.safetensors", trained(norm)
    written = card(norm=norm)
    save_checkpoint(path, Checkpoint(written, network.state_dict(), heads()))
    assert is_checkpoint(path)
    found = load_checkpoint(path)
    assert found.card == written
    assert list(found.heads) == ["rotation"]
    assert all(torch.equal(found.heads["rotation"][name], t) for name, t in heads()["rotation"].items())
    built = found.build(path)
    state = network.state_dict()
    assert list(built.state_dict()) == list(state)
    assert all(torch.equal(t, state[name]) for name, t in built.state_dict().items())
    assert "linear.bias" not in state
    assert isinstance(built.bn1, InstanceAwareBatchNorm2d) == (norm == "iabn")
    assert not built.training
    x = batch(2, 3, 32, 32)
    assert torch.equal(built(x), network(x))
    assert [entry.name for entry in tmp_path.iterdir()] == ["c.safetensors"]


def test_a_context_network_comes_back_with_its_context(tmp_path):
    path, network = tmp_path / "c.safetensors", stir(ContextNetwork(trained(), 2))
    save_checkpoint(path, Checkpoint(card(context=2, heads=()), network.state_dict()))
    x = batch(2, 3, 32, 32)
    assert torch.equal(load_checkpoint(path).build(path)(x), network(x))
    edited(path, with_entry(classes=["dog", "cat"]))
    with pytest.raises(BadFile, match="predicts 3 classes, but 2 class names"):
        load_checkpoint(path).build(path)


def test_a_method_gets_the_head_it_was_trained_with(path):
    found = load_checkpoint(str(path))
    (task,) = found.options_for("rotation").values()
    assert torch.equal(task["head.weight"], heads()["rotation"]["head.weight"])
    assert found.options_for("jigsaw") == found.options_for("tent") == {}
    adaptor = domainadaptor.adapt(found.build(), "rotation", **found.options_for("rotation"))
    assert adaptor(batch(4, 3, 32, 32)).shape == (4, 3)


def test_a_network_may_call_its_own_head_like_ours(tmp_path):
    """As torchvision's transformers do."""
    tensors = {"heads.head.weight": torch.ones(3, 2), "conv.weight": torch.ones(1)}
    save_checkpoint(tmp_path / "c.safetensors", Checkpoint(card(), tensors, heads()))
    found = load_checkpoint(tmp_path / "c.safetensors")
    assert set(found.tensors) == set(tensors)
    with pytest.raises(BadOption, match="cannot be called 'head'"):
        save_checkpoint(tmp_path / "d.safetensors", Checkpoint(card(), tensors, {"head": heads()["rotation"]}))


def test_missing_truncated_and_foreign_files(path, tmp_path):
    with pytest.raises(BadFile, match=r"no checkpoint at .*expected a .safetensors file that `domainadaptor train`"):
        load_checkpoint(tmp_path / "none.safetensors")
    with pytest.raises(BadFile, match="no checkpoint at"):
        load_checkpoint(tmp_path)
    whole = path.read_bytes()
    for keep in (0, 4, 200, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:keep])
        assert not is_checkpoint(path)
        with pytest.raises(BadFile, match="not a complete safetensors file .*; copy or train it again"):
            load_checkpoint(path)
    save_file(trained().state_dict(), path)
    assert not is_checkpoint(path)
    with pytest.raises(BadFile, match=r"weights only\. Pass the network's name and --weights c\.safetensors"):
        load_checkpoint(path)


def with_entry(**changes):
    return lambda entry: {**entry, **changes}


def with_preprocessing(**changes):
    return lambda entry: {**entry, "preprocessing": {**entry["preprocessing"], **changes}}


def without(name):
    return lambda entry: {key: value for key, value in entry.items() if key != name}


EDITS = {
    "another version": (with_entry(format=2), r"expected a checkpoint of format 1, got 2; install the version"),
    "no version": (without("format"), "cannot be read"),
    "no JSON": (lambda entry: "{", "cannot be read"),
    "a list": (lambda entry: [], "cannot be read"),
    "brackets without end": (lambda entry: "[" * 200_000, "cannot be read"),
    "unknown entry": (with_entry(colour="red"), "invalid card: colour: "),
    "no classes": (without("classes"), "classes: Field required"),
    "no preprocessing": (without("preprocessing"), "preprocessing: Field required"),
    "one class": (with_entry(classes=["dog"]), "classes: Tuple should have at least 2 items"),
    "a class twice": (with_entry(classes=["dog", "cat", "dog"]), "classes: expected different names, got dog, cat"),
    "numbers for classes": (with_entry(classes=[1, 2, 3]), "classes.0: Input should be a valid string"),
    "a word for classes": (with_entry(classes="dog"), "classes: "),
    "a head twice": (with_entry(heads=["rotation", "rotation"]), "heads: expected different names"),
    "no name of a network": (with_entry(network=None), "network: Input should be a valid string"),
    "unknown network": (with_entry(network="cifar:resnet21"), "not available: .*did you mean.*install the versions"),
    "unknown norm": (with_entry(norm="layer"), "norm: Input should be 'batch' or 'iabn'"),
    "bias": (with_entry(head_bias="no"), "head_bias: Input should be a valid boolean"),
    "seed": (with_entry(seed="3"), "seed: Input should be a valid integer"),
    "context": (with_entry(context=-1), "context: Input should be greater than or equal to 0"),
    "recipe": (with_entry(recipe=3), "recipe: "),
    "size": (with_preprocessing(size=0), "preprocessing: expected a size above 0"),
    "resize": (with_preprocessing(resize=8), "resize of at least that, got 32 and 8"),
    "mean": (with_preprocessing(mean=[0.5]), r"expected three means .*got \(0.5,\)"),
    "deviation": (with_preprocessing(std=[0.5, 0.5, 0]), "three positive deviations"),
    "no deviation": (with_preprocessing(std=[0.5, 0.5, float("nan")]), "preprocessing.std.2: "),
    "interpolation": (with_preprocessing(interpolation="cubic"), "interpolation 'cubic': expected one of nearest"),
    "unknown preprocessing": (with_preprocessing(flip=True), "preprocessing.flip: "),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_card_is_noticed(path, edit):
    change, hint = EDITS[edit]
    edited(path, change)
    with pytest.raises(BadFile, match=hint) as error:
        load_checkpoint(path)
    assert "c.safetensors" in str(error.value)
    assert "train again" in str(error.value) or "install" in str(error.value)


def test_names_in_a_card_never_import_code(path, monkeypatch):
    """A network, a norm or an algorithm that a file names is looked up among the registered ones."""
    imported = []
    monkeypatch.setattr("importlib.import_module", lambda name, *rest: imported.append(name))
    for entry in ({"network": "os:getcwd"}, {"norm": "os:getcwd"}):
        with pytest.raises(BadFile):
            load_checkpoint(edited(path, with_entry(**entry)))
        edited(path, with_entry(network="cifar:resnet20", norm="batch"))
    edited(path, lambda entry: {**entry, "recipe": {**entry["recipe"], "algorithm": "os:getcwd"}})
    assert load_checkpoint(path).card.recipe["algorithm"] == "os:getcwd"  # text, and nothing else
    assert not imported


def test_other_classes_than_the_weights_have_are_noticed(path):
    edited(path, with_entry(classes=["dog", "cat"]))
    with pytest.raises(BadFile, match=r"predicts 3 classes, but 2 class names were given \(dog, cat\)"):
        load_checkpoint(path).build(path)


def test_as_many_classes_as_channels_are_no_excuse(path):
    edited(path, with_entry(classes=[str(k) for k in range(16)]))  # the first convolution has 16 outputs
    with pytest.raises(BadFile, match="predicts 3 classes, but 16 class names"):
        load_checkpoint(path).build(path)


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        (lambda held: {k: t for k, t in held.items() if not k.startswith("heads.")}, "no tensors of it"),
        (lambda held: {**held, "heads.rotation.bias": torch.full((4,), float("nan"))}, "NaN"),
        (lambda held: {**held, "heads.jigsaw.bias": torch.zeros(4)}, r"not expected \(heads.jigsaw.bias\)"),
        (lambda held: {**held, "linear.bias": torch.zeros(3)}, r"not expected \(linear.bias\)"),
        (lambda held: {k: t for k, t in held.items() if k != "bn1.running_mean"}, r"missing \(bn1.running_mean\)"),
        (lambda held: {**held, "bn1.running_var": -held["bn1.running_var"]}, "negative variances"),
        (lambda held: {**held, "conv1.weight": torch.zeros(16, 1, 3, 3)}, r"\(16, 1, 3, 3\) in the file"),
    ],
)
def test_other_tensors_than_the_card_says_are_noticed(path, change, hint):
    edited(path, tensors=change)
    with pytest.raises(BadFile, match=hint):
        load_checkpoint(path).build(path)


def test_another_network_than_the_weights_are_of_is_noticed(path):
    edited(path, with_entry(network="cifar:resnet32"))
    with pytest.raises(BadFile, match="does not fit CifarResNet"):
        load_checkpoint(path).build(path)


def test_a_failed_write_leaves_the_old_file(path, monkeypatch, tmp_path):
    held = path.read_bytes()

    def half(tensors, beside, metadata):
        Path(beside).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "save_file", half)
    with pytest.raises(BadFile, match=r"[Cc]annot write .*No space left on device; choose another place"):
        save_checkpoint(path, Checkpoint(card(), {"w": torch.zeros(1)}, heads()))
    assert path.read_bytes() == held
    assert [entry.name for entry in tmp_path.iterdir()] == ["c.safetensors"]


def test_a_folder_that_is_not_there_is_told(tmp_path):
    with pytest.raises(BadFile, match=r"[Cc]annot write .*choose another place"):
        save_checkpoint(tmp_path / "none" / "c.safetensors", Checkpoint(card(), {"w": torch.zeros(1)}, heads()))


def test_an_unknown_norm_is_refused():
    with pytest.raises(BadOption, match="norm='ibn' is not known; did you mean"):
        make_network("resnet20", 3, head_bias=True, norm="ibn")
