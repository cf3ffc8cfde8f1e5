import os
import pickle
import re
import warnings
import zipfile
from argparse import Namespace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from safetensors.torch import save_file
from torch import nn

from domainadaptor.errors import BadFile
from domainadaptor.lab.networks.heads import remove_head_bias
from domainadaptor.lab.networks.loading import load_network
from domainadaptor.lab.networks.weights import count_classes, load_weights, read_weights
from domainadaptor.lab.networks.zoo import find_network
from tests.conftest import GoldenNet, batch, stir


@pytest.fixture
def trained():
    return stir(GoldenNet())


def fresh():
    torch.manual_seed(1)
    return GoldenNet()


def same(one, other):
    return all(torch.equal(t, other.state_dict()[name]) for name, t in one.state_dict().items())


def without_counters(state):
    return {name: tensor for name, tensor in state.items() if "num_batches" not in name}


def prefixed(state, prefix):
    return {prefix + name: tensor for name, tensor in state.items()}


def domainbed(state):
    """As DomainBed's train.py saves an algorithm: body and head, and both again as one network."""
    head = {name.removeprefix("fc."): tensor for name, tensor in state.items() if name.startswith("fc.")}
    body = prefixed({name: tensor for name, tensor in state.items() if not name.startswith("fc.")}, "network.")
    algorithm = prefixed(body, "featurizer.") | prefixed(head, "classifier.")
    algorithm |= prefixed(body, "network.0.") | prefixed(head, "network.1.")
    return {"args": {"algorithm": "ERM"}, "model_hparams": {"lr": np.float64(5e-5)}, "model_dict": algorithm}


# As torchvision itself builds a network for its weights.
ASKED = {"googlenet": {"init_weights": False, "transform_input": True}}

# What is saved, how, and under which name.
WAYS = {
    "safetensors": (lambda n: n.state_dict(), save_file, "w.safetensors"),
    "no counters": (lambda n: without_counters(n.state_dict()), save_file, "w.safetensors"),
    "pt": (lambda n: n.state_dict(), torch.save, "w.pt"),
    "legacy": (lambda n: n.state_dict(), partial(torch.save, _use_new_zipfile_serialization=False), "w.pth"),
    "checkpoint": (lambda n: {"state_dict": n.state_dict(), "epoch": 3}, torch.save, "w.pth.tar"),
    "parallel": (lambda n: nn.DataParallel(n).state_dict(), torch.save, "w.pth"),
    "compiled": (lambda n: {"model": torch.compile(n).state_dict()}, torch.save, "w.pt"),
    "encoder": (lambda n: prefixed(n.state_dict(), "encoder.net."), torch.save, "w.bin"),
    "options": (lambda n: {"state_dict": n.state_dict(), "args": Namespace(lr=0.1)}, torch.save, "w.pth.tar"),
    "numbers": (lambda n: {"state_dict": n.state_dict(), "best_prec1": np.float64(93.5)}, torch.save, "w.th"),
    "other numbers": (lambda n: {"net": n.state_dict(), "acc": np.float32(1), "at": np.int64(3)}, torch.save, "w.t7"),
    "average": (lambda n: {"state": n.state_dict(), "ema": fresh().state_dict()}, torch.save, "w.pt"),
    "domainbed": (lambda n: domainbed(n.state_dict()), torch.save, "model.pkl"),
    "head": (lambda n: {k.replace("fc.", "linear."): t for k, t in n.state_dict().items()}, torch.save, "w.pt"),
    "lightning": (lambda n: {"state_dict": prefixed(n.state_dict(), "model."), "lr": 0.1}, torch.save, "w.ckpt"),
}


@pytest.mark.parametrize("way", WAYS)
def test_files_that_people_have(way, trained, tmp_path):
    held, save, name = WAYS[way]
    path = tmp_path / name
    save(held(trained), path)
    network = fresh()
    load_weights(network, read_weights(path), path)
    assert same(trained, network)


def test_float16_is_cast(trained, tmp_path):
    path = tmp_path / "w.safetensors"
    save_file({k: v.half() if v.is_floating_point() else v for k, v in trained.state_dict().items()}, path)
    network = fresh()
    load_weights(network, read_weights(path), path)
    assert network.c1.weight.dtype == torch.float32
    torch.testing.assert_close(network.c1.weight, trained.c1.weight, atol=1e-3, rtol=1e-3)


class Evil:
    """Makes a file appear when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self):
        return (os.system, (f"touch {self.canary}",))


def attack_files(folder: Path, canary: Path, network: nn.Module) -> dict[str, Path]:
    files = {}
    for name, options in {"zip.pt": {}, "legacy.pth": {"_use_new_zipfile_serialization": False}}.items():
        torch.save({"w": Evil(canary)}, folder / name, **options)
        files[name] = folder / name
    (folder / "raw.pt").write_bytes(pickle.dumps(Evil(canary)))
    files["raw"] = folder / "raw.pt"
    torch.save(network, folder / "whole.pt")
    files["whole network"] = folder / "whole.pt"
    torch.save({"state_dict": network.state_dict(), "args": Evil(canary)}, folder / "mixed.ckpt")
    files["hidden beside tensors"] = folder / "mixed.ckpt"
    torch.save({"state_dict": network.state_dict(), "args": Namespace(seed=Evil(canary))}, folder / "model.pkl")
    files["hidden in options"] = folder / "model.pkl"
    return files


@pytest.mark.parametrize("force", [False, True])
def test_nothing_that_could_run_code_is_loaded(trained, tmp_path, monkeypatch, force):
    canary = tmp_path / "canary"
    if force:
        monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    for name, path in attack_files(tmp_path, canary, trained).items():
        with pytest.raises(BadFile, match=r"run code|not a torch file"):
            read_weights(path)
        assert not canary.exists(), name


def test_what_torch_remarks_on_a_file_before_it_is_refused_is_not_shown(trained, tmp_path):
    torch.save(trained, tmp_path / "w.pt", pickle_protocol=4)
    with pytest.warns(UserWarning, match="protocol 4"), pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / "w.pt", weights_only=True)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        with pytest.raises(BadFile, match="run code"):
            read_weights(tmp_path / "w.pt")
    assert shown == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_programs_are_refused(trained, tmp_path):
    script = tmp_path / "script.pt"
    torch.jit.script(trained).save(str(script))
    with pytest.raises(BadFile, match="TorchScript"):
        read_weights(script)
    for suffix in (".pt2", ".mar", ".onnx", ".h5", ""):
        path = tmp_path / f"w{suffix}"
        path.write_bytes(b"x")
        with pytest.raises(BadFile, match="expected .safetensors, .pt or .pth"):
            read_weights(path)


def test_damaged_and_missing_files(trained, tmp_path):
    with pytest.raises(BadFile, match="no weights at"):
        read_weights(tmp_path / "none.pt")
    for name, save in {"w.safetensors": save_file, "w.pt": torch.save}.items():
        path = tmp_path / name
        save(trained.state_dict(), path)
        whole = path.read_bytes()
        for keep in (0, 5, len(whole) // 2, len(whole) - 10):
            path.write_bytes(whole[:keep])
            with pytest.raises(BadFile):
                read_weights(path)
    nested = tmp_path / "nested.pt"
    with zipfile.ZipFile(nested, "w") as archive:
        archive.writestr("hello.txt", "hi")
    with pytest.raises(BadFile):
        read_weights(nested)
    torch.save({0: torch.zeros(1)}, nested)
    with pytest.raises(BadFile, match="expected named tensors"):
        read_weights(nested)
    torch.save({"epoch": 3}, nested)
    with pytest.raises(BadFile, match="expected named tensors.*epoch"):
        read_weights(nested)


def test_wrong_keys_are_explained_with_both_lists_and_nothing_is_loaded(trained, tmp_path):
    weights = {**trained.state_dict(), "extra.weight": torch.zeros(1)}
    del weights["fc.bias"]
    network = fresh()
    before = {k: v.clone() for k, v in network.state_dict().items()}
    with pytest.raises(BadFile, match=r"1 tensors missing \(fc.bias\), 1 not expected \(extra.weight\)"):
        load_weights(network, weights, Path("w.pt"))
    assert all(torch.equal(before[k], v) for k, v in network.state_dict().items())


def test_a_head_under_another_name_says_how_many_classes_there_are(tmp_path):
    trained = stir(find_network("resnet20").build(7, seed=1))
    path = tmp_path / "w.th"
    torch.save({key.replace("linear.", "fc."): tensor for key, tensor in trained.state_dict().items()}, path)
    opened = load_network("resnet20", str(path))
    assert len(opened.classes) == 7
    x = batch(2, 3, 32, 32)
    assert torch.equal(opened.network(x), trained(x))


def test_wrong_class_counts_are_explained_with_the_names():
    network = torchvision.models.resnet18(num_classes=3)
    weights = torchvision.models.resnet18(num_classes=5).state_dict()
    with pytest.raises(BadFile, match=r"predicts 5 classes, but 3 class names were given \(cat, dog, bird\)"):
        load_weights(network, weights, Path("w.pt"), ["cat", "dog", "bird"])
    assert count_classes(weights, network, ("fc.weight", "fc.bias")) == 5


def test_tensors_of_odd_kinds_are_refused(trained):
    whole = torch.zeros(8, 3, 3, 3)
    for odd in (whole.to("meta"), whole.to_sparse(), torch.nested.nested_tensor(list(whole), layout=torch.jagged)):
        with pytest.raises(BadFile, match=r"ordinary.*c1\.weight"):
            load_weights(fresh(), {**trained.state_dict(), "c1.weight": odd}, Path("w.pt"))


KINDS = {
    "int8": lambda t: t.to(torch.int8),
    "bool": lambda t: t.bool(),
    "complex64": lambda t: t.to(torch.complex64),
    "float8_e4m3fn": lambda t: t.to(torch.float8_e4m3fn),
}


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_of_another_kind_are_refused_and_both_kinds_named(trained, kind, tmp_path):
    weights = {**trained.state_dict(), "c1.weight": KINDS[kind](trained.c1.weight.detach())}
    save_file(weights, tmp_path / "w.safetensors") if kind != "complex64" else None
    read = read_weights(tmp_path / "w.safetensors") if kind != "complex64" else weights
    network = fresh()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    with pytest.raises(BadFile, match=f"c1.weight is {kind} in the file and float32 in the network"):
        load_weights(network, read, Path("w.safetensors"))
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_floats_of_other_precision_are_converted(trained, kind):
    network = fresh()
    load_weights(
        network, {n: t.to(kind) if t.is_floating_point() else t for n, t in trained.state_dict().items()}, Path()
    )
    assert network.c1.weight.dtype == torch.float32


def test_one_value_that_stands_for_billions_is_refused_before_anything_is_allocated(tmp_path):
    weights = find_network("resnet20").build(10).state_dict()
    weights["linear.weight"] = torch.zeros(1, 64).expand(2_000_000_000, 64)
    weights["linear.bias"] = torch.zeros(1).expand(2_000_000_000)
    torch.save(weights, tmp_path / "w.pt")
    assert (tmp_path / "w.pt").stat().st_size < 2e6
    with pytest.raises(
        BadFile, match=r"linear.weight \(2000000000, 64\) has 512,000,000,000 bytes, but the whole file"
    ):
        load_network("resnet20", str(tmp_path / "w.pt"))


def test_compressed_files_are_refused_before_they_are_unpacked(tmp_path):
    torch.save({"w": torch.zeros(1_000_000)}, tmp_path / "w.pt")
    with (
        zipfile.ZipFile(tmp_path / "w.pt") as whole,
        zipfile.ZipFile(tmp_path / "z.pt", "w", zipfile.ZIP_DEFLATED) as z,
    ):
        for name in whole.namelist():
            z.writestr(name, whole.read(name))
    assert read_weights(tmp_path / "w.pt")["w"].shape == (1_000_000,)
    with pytest.raises(BadFile, match=r"is compressed: 4,\d+,\d+ bytes unpacked"):
        read_weights(tmp_path / "z.pt")


def test_other_shapes_are_explained():
    with pytest.raises(BadFile, match=r"c1.weight: \(8, 3, 5, 5\) in the file, \(8, 3, 3, 3\) in the network"):
        load_weights(fresh(), {**fresh().state_dict(), "c1.weight": torch.zeros(8, 3, 5, 5)}, Path("w.pt"))


@pytest.mark.parametrize(
    ("name", "value", "hint"), [("c1.weight", float("nan"), "NaN"), ("bn1.running_var", -1.0, "negative")]
)
def test_impossible_values_are_refused(trained, name, value, hint):
    weights = {k: v.clone() for k, v in trained.state_dict().items()}
    weights[name].view(-1)[0] = value
    with pytest.raises(BadFile, match=hint):
        load_weights(fresh(), weights, Path("w.pt"))


@pytest.mark.parametrize("name", ["mnasnet0_5", "googlenet", "densenet121"])
def test_torchvision_files_load_as_they_are(name, tmp_path):
    """With the names and versions that the files have which torchvision publishes."""
    theirs = torchvision.models.get_model(name, weights=None, num_classes=5, **ASKED.get(name, {})).eval()
    stir(theirs)
    names = {key: re.sub(r"(denselayer\d+\.(?:norm|conv))([12])\.", r"\1.\2.", key) for key in theirs.state_dict()}
    torch.save({names[key]: tensor for key, tensor in theirs.state_dict().items()}, tmp_path / "w.pth")
    opened = load_network(name, str(tmp_path / "w.pth"))
    x = batch(2, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(opened.network(x), theirs(x))


def test_preprocessing_follows_the_published_file(tmp_path):
    """torchvision's first weights of ResNet-50 are tested at 256, its second at 232."""
    state = torchvision.models.resnet50(num_classes=3).state_dict()
    for file, resize in (("resnet50-0676ba61.pth", 256), ("resnet50-11ad3fa6.pth", 232), ("mine.pth", 232)):
        torch.save(state, tmp_path / file)
        assert load_network("resnet50", str(tmp_path / file)).preprocessing.resize == resize


def test_a_head_without_bias_is_taken_for_one(tmp_path):
    """As DomainAdaptor's authors save their networks."""
    trained = stir(find_network("resnet20").build(7, seed=1))
    remove_head_bias(trained, 7)
    path = tmp_path / "best.pth"
    torch.save({"model": prefixed(trained.state_dict(), "backbone."), "opt": {"param_groups": []}}, path)
    opened = load_network("resnet20", str(path))
    assert opened.notes[0] == "best.pth has a head without bias"
    x = batch(2, 3, 32, 32)
    assert torch.equal(opened.network(x), trained(x))
