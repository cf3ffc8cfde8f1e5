"""ONNX files as untrusted input."""

import json

import onnx
import pytest
import torch

from domainadaptor.errors import BadBatch, BadFile
from domainadaptor.lab.export import run
from domainadaptor.lab.export.run import OnnxNetwork
from domainadaptor.lab.export.write import export_onnx
from tests.lab.export.networks import random_network


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("onnx") / "good.onnx"
    export_onnx(random_network("cifar:resnet8"), path, "adabn")
    return path


@pytest.fixture
def edited(written, tmp_path):
    """Return a function that edits a copy of the file and returns its path."""

    def edit(change):
        model = onnx.load(written)
        change(model)
        path = tmp_path / "model.onnx"
        path.write_bytes(model.SerializeToString())
        return path

    return edit


def rewrite_card(**fields):
    def change(model):
        card = json.loads(model.metadata_props[0].value) | fields
        model.metadata_props[0].value = json.dumps(card)

    return change


def keep_weights_outside(model):
    tensor = model.graph.initializer[0]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")


def hide_a_tensor_in_a_branch(model):
    branch = onnx.GraphProto(name="branch")
    tensor = branch.initializer.add(name="secret")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    model.graph.node.append(onnx.helper.make_node("If", ["condition"], ["out"], then_branch=branch, else_branch=branch))


def add_a_loop(model):
    model.graph.node.append(onnx.helper.make_node("Loop", [], ["out"], body=onnx.GraphProto(name="body")))


def drop_the_card(model):
    del model.metadata_props[:]


def use_an_unknown_operator(model):
    model.graph.node[0].op_type = "Formatter"


def rename_the_input(model):
    model.graph.input[0].name = "pixels"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (keep_weights_outside, "keeps weights in other files"),
        (hide_a_tensor_in_a_branch, "keeps weights in other files"),
        (add_a_loop, "has the operator Loop"),
        (drop_the_card, "does not say which classes"),
        (use_an_unknown_operator, "onnxruntime cannot load"),
        (rename_the_input, "expected images"),
        (rewrite_card(classes=["one", "two"]), "logits .batch, 2."),
        (rewrite_card(classes="cat"), "invalid metadata: classes"),
        (rewrite_card(more=1), "invalid metadata: more"),
        (rewrite_card(preprocessing={"size": 0, "resize": 0}), "expected a size above 0"),
        (rewrite_card(fewest=0), "invalid metadata: fewest"),
    ],
)
def test_a_file_that_was_edited_is_refused(edited, change, message):
    with pytest.raises(BadFile, match=message):
        OnnxNetwork(edited(change))


@pytest.mark.parametrize("content", [b"", b"no onnx", b"\x08\x07" * 100, b"PK\x03\x04"])
def test_what_is_no_onnx_file_is_refused(tmp_path, content):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(BadFile, match="is not a complete ONNX file"):
        OnnxNetwork(path)


def test_a_part_of_a_file_is_refused(written, tmp_path):
    whole, path = written.read_bytes(), tmp_path / "model.onnx"
    for share in (0.1, 0.5, 0.9, 0.999):
        path.write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(BadFile):
            OnnxNetwork(path)


def test_large_files_and_missing_ones_are_not_read(written, tmp_path, monkeypatch):
    with pytest.raises(BadFile, match="No ONNX file"):
        OnnxNetwork(tmp_path)
    monkeypatch.setattr(run, "MOST_BYTES", 1000)
    with pytest.raises(BadFile, match="larger than 2 GB"):
        OnnxNetwork(written)


def test_batches_that_do_not_fit_are_refused(written):
    network = OnnxNetwork(written)
    with pytest.raises(BadBatch, match=r"cannot run a batch of shape \(2, 3, 16, 16\)"):
        network.adapt(torch.zeros(2, 3, 16, 16))
    with pytest.raises(BadBatch, match="not finite"):
        network.adapt(torch.full((2, 3, 32, 32), torch.nan))


def test_batches_that_are_too_small_carry_a_warning(written):
    network = OnnxNetwork(written)
    assert "A batch of 2 is too small" in str(network.adapt(torch.rand(2, 3, 32, 32)).warnings[0])
    assert not network.adapt(torch.rand(5, 3, 32, 32)).warnings
