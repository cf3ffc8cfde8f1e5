"""ONNX files against the adaptor, network by network; and that an error leaves no file."""

import json
import re
from pathlib import Path

import onnx
import pytest
import torch

import domainadaptor as da
from domainadaptor.errors import BadFile, BadOption, UnsupportedNetwork
from domainadaptor.lab.export import write
from domainadaptor.lab.export.run import OnnxNetwork
from domainadaptor.lab.export.write import CHECKED, TOLERANCE, export_onnx, varied_images
from tests.lab.export.networks import FEW, MORE, random_network

SMALL = "cifar:resnet8"
GUIDE = Path(__file__).parents[3] / "docs" / "export.md"


@pytest.mark.parametrize("name", [*FEW.split(), *(pytest.param(n, marks=pytest.mark.slow) for n in MORE.split())])
def test_networks_are_exported_and_agree(name, tmp_path):
    loaded, path = random_network(name), tmp_path / "model.onnx"
    assert export_onnx(loaded, path, "auto") <= TOLERANCE
    # Other images and another batch size than the export checks with.
    images = varied_images(5, loaded.preprocessing.size) * 2 - 0.5
    expected = da.adapt(loaded.network, "auto", effort="one")(images)
    found = OnnxNetwork(path).adapt(images).logits
    assert float((found - expected).norm() / expected.norm()) <= TOLERANCE


def test_at_least_sixty_networks_are_tested_and_the_guide_knows_how_many():
    names = {*FEW.split(), *MORE.split()}
    assert len(FEW.split()) >= 10
    assert len(names) >= 60
    assert f"{len(names)} classifiers" in GUIDE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("method", "options"),
    [("source", {}), ("adabn", {}), ("adamixbn", {"alpha": "paper"}), ("adamixbn", {"alpha": 0.4})],
)
def test_methods_agree_and_are_noted_in_the_file(method, options, tmp_path):
    loaded, path = random_network(SMALL), tmp_path / "model.onnx"
    export_onnx(loaded, path, method, options)
    card = OnnxNetwork(path).card
    assert (card.method, card.options, card.version) == (method, options, da.__version__)
    assert (card.classes, card.preprocessing, card.opset) == (loaded.classes, loaded.preprocessing, write.OPSET)


def test_a_file_is_dynamic_complete_and_says_nothing_about_the_machine(tmp_path):
    path = tmp_path / "model.onnx"
    seen = []
    export_onnx(random_network(SMALL), path, "auto", progress=seen.append)
    assert seen == ["export", *(f"check with {count} images" for count in CHECKED)]
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert {entry.domain: entry.version for entry in model.opset_import}[""] == write.OPSET
    assert json.loads(model.metadata_props[0].value)["options"] == {"effort": "one"}
    for place in (str(Path(torch.__file__).parent), str(Path(da.__file__).parent), str(Path.home())):
        assert place.encode() not in path.read_bytes()


def test_the_statistics_are_in_the_file(tmp_path):
    """An exporter that writes batch norm in eval mode would give the source model's logits."""
    loaded = random_network(SMALL)
    files = {}
    for method in ("source", "adabn"):
        export_onnx(loaded, tmp_path / f"{method}.onnx", method)
        files[method] = OnnxNetwork(tmp_path / f"{method}.onnx")
    images = varied_images(8, 32)
    whole = files["adabn"].adapt(images).logits
    assert not torch.allclose(whole, files["source"].adapt(images).logits, rtol=0.05)
    assert not torch.allclose(whole[:4], files["adabn"].adapt(images[:4]).logits, rtol=0.05)


def test_a_file_that_does_not_agree_is_not_written(tmp_path, monkeypatch):
    path = tmp_path / "model.onnx"
    path.write_text("the file of before")
    monkeypatch.setattr(write, "run_session", lambda session, images: torch.ones(len(images), 13))
    with pytest.raises(
        UnsupportedNetwork, match=r"does not repeat PyTorch's predictions: for 1 images .* at most 1e-04"
    ):
        export_onnx(random_network(SMALL), path)
    assert path.read_text() == "the file of before"
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]


def test_what_torch_cannot_export_is_named(tmp_path, monkeypatch):
    def export(*args, **kwargs):
        raise RuntimeError("a long story") from ValueError("the forward decides by values\nin Python")

    monkeypatch.setattr(torch.onnx, "export", export)
    why = "torch cannot export cifar:resnet8 to ONNX: ValueError: the forward decides by values"
    with pytest.raises(UnsupportedNetwork, match=re.escape(why)):
        export_onnx(random_network(SMALL), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_refusals_come_before_anything_is_written(tmp_path, monkeypatch):
    with pytest.raises(BadOption, match="calibrate"):
        export_onnx(random_network(SMALL), tmp_path / "model.onnx", "domainadaptor-t")
    monkeypatch.setattr(write, "MOST_BYTES", 1000)
    with pytest.raises(BadFile, match="holds at most 2 GB"):
        export_onnx(random_network(SMALL), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())
