"""The Open Inference Protocol v2, spoken by NVIDIA's client."""

import json
import struct

import numpy as np
import pytest
import torch

import domainadaptor as da
from tests.conftest import batch

http = pytest.importorskip("tritonclient.http", reason="the extra dev has tritonclient[http]")
IMAGES = batch(5, 3, 16, 16).numpy()


@pytest.fixture
def client(service):
    with http.InferenceServerClient(f"localhost:{service.port}") as made:
        yield made


@pytest.fixture(scope="module")
def expected(network):
    net = network[0]
    images = torch.from_numpy(IMAGES)
    with torch.no_grad():
        return net(images).numpy(), da.adapt(net)(images).detach().numpy()


def given(images=IMAGES, binary=True):
    images_input = http.InferInput("images", images.shape, "FP32")
    images_input.set_data_from_numpy(images, binary_data=binary)
    return [images_input]


def test_the_client_finds_the_model(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("resnet20")
    assert not client.is_model_ready("another")
    assert client.get_server_metadata()["name"] == "domainadaptor"
    about = client.get_model_metadata("resnet20")
    assert about["inputs"] == [{"name": "images", "datatype": "FP32", "shape": [-1, 3, 16, 16]}]
    assert [output["shape"] for output in about["outputs"]] == [[-1, 3], [-1, 3]]


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False, None])
def test_tensors_get_the_logits_of_the_library(client, expected, binary_in, binary_out):
    outputs = None
    if binary_out is not None:
        outputs = [http.InferRequestedOutput(name, binary_data=binary_out) for name in ("source_logits", "logits")]
    found = client.infer("resnet20", given(binary=binary_in), outputs=outputs, request_id="seven")
    source, adapted = expected
    np.testing.assert_allclose(found.as_numpy("source_logits"), source, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.as_numpy("logits"), adapted, rtol=1e-3, atol=1e-4)
    answer = found.get_response()
    assert (answer["id"], answer["model_name"]) == ("seven", "resnet20")
    assert answer["parameters"] == {"fell_back": False}


def test_one_output_of_two_can_be_asked_for(client):
    found = client.infer("resnet20", given(), outputs=[http.InferRequestedOutput("logits")])
    assert found.as_numpy("source_logits") is None
    assert found.as_numpy("logits").shape == (5, 3)


@pytest.mark.parametrize(
    ("images", "hint"),
    [
        (np.full_like(IMAGES, np.nan), "NaN or infinite values in 5 of 5 images"),
        (np.zeros((2, 3, 8, 8), np.float32), "shape [N, 3, 16, 16]"),
        (np.zeros((0, 3, 16, 16), np.float32), "no images"),
        (np.zeros((17, 3, 16, 16), np.float32), "At most 16 images"),
    ],
)
def test_wrong_tensors_are_refused_with_a_reason(client, images, hint):
    with pytest.raises(http.InferenceServerException) as caught:
        client.infer("resnet20", given(images))
    assert hint in caught.value.message()


def test_another_model_or_compression_is_refused(client):
    with pytest.raises(http.InferenceServerException, match="no such model"):
        client.infer("another", given())
    with pytest.raises(http.InferenceServerException, match="Compressed"):
        client.infer("resnet20", given(), request_compression_algorithm="gzip")


def request(**changes) -> bytes:
    size = {"binary_data_size": 3072}
    tensor = {"name": "images", "datatype": "FP32", "shape": [1, 3, 16, 16], "parameters": size, **changes}
    return json.dumps({"inputs": [tensor]}).encode()


def twice() -> bytes:
    """Ask for one output many times, which would multiply the size of the answer."""
    return json.dumps({**json.loads(request()), "outputs": [{"name": "logits"}] * 1000}).encode()


@pytest.mark.parametrize(
    ("text", "binary", "header", "hint"),
    [
        (request(), bytes(3072), "99999", "not within the body"),
        (request(), bytes(3072), "-1", "not a number"),
        (request(), bytes(3072), "1e3", "not a number"),
        (request(), bytes(3071), None, "Expected 3072 bytes"),
        (request(), bytes(3076), None, "Expected 3072 bytes"),
        (request(parameters={"binary_data_size": 10**18}), bytes(3072), None, "Expected 3072 bytes"),
        (request(shape=[10**12, 3, 16, 16]), bytes(3072), None, "At most 16 images"),
        (request(shape=[-1, 3, 16, 16]), bytes(3072), None, "no images"),
        (request(shape=[1.5, 3, 16, 16]), bytes(3072), None, "Invalid JSON"),
        (request(datatype="BYTES"), bytes(3072), None, "FP32"),
        (request(name="../../etc/passwd"), bytes(3072), None, "Expected the input 'images'"),
        (twice(), bytes(3072), None, "each once"),
        (request(data=[1.0, 2.0]), b"", None, "Expected 768 numbers"),
        (request(data=["a"] * 768), b"", None, "to be numbers"),
        (request(data=[[1.0], [1.0, 2.0]]), b"", None, "to be numbers"),
        (request(data=[10**400] * 768), b"", None, "to be numbers"),
        (request(data=[1e300] * 768), b"", None, "NaN or infinite"),
    ],
)
def test_malformed_requests_are_refused_with_a_reason(service, text, binary, header, hint):
    length = str(len(text)) if header is None else header
    found = service.ask("POST", "/v2/models/resnet20/infer", text + binary, Inference_Header_Content_Length=length)
    assert found.status in (400, 413)
    assert hint in found.error


def test_binary_numbers_are_little_endian(service, expected):
    content = struct.pack(f"<{IMAGES.size}f", *IMAGES.ravel())
    text = request(shape=list(IMAGES.shape), parameters={"binary_data_size": len(content)})
    path = "/v2/models/resnet20/infer"
    found = service.ask("POST", path, text + content, Inference_Header_Content_Length=str(len(text)))
    logits = json.loads(found.body)["outputs"][0]
    np.testing.assert_allclose(np.reshape(logits["data"], logits["shape"]), expected[1], rtol=1e-3, atol=1e-4)
