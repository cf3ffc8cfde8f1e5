"""`/predict`: answers equal the library's, and whatever else is sent is refused with a reason."""

import base64
import io
import json

import pytest
import torch
from PIL import Image

import domainadaptor as da
from tests.serve.service import CLASSES, form, picture

FILES = [picture(at) for at in range(6)]
FIELD = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n/etc/passwd\r\n--b--\r\n'


@pytest.fixture(scope="module")
def expected(network):
    """Both predictions of the files, computed in this process."""
    net, preprocessing = network
    images = torch.stack([preprocessing.transform()(Image.open(io.BytesIO(data)).convert("RGB")) for data in FILES])
    adapted = da.adapt(net).adapt(images)
    with torch.no_grad():
        return net(images).softmax(1), adapted.logits.softmax(1), adapted.alpha


def check(found: dict, expected) -> None:
    source, adapted, _ = expected
    assert len(found["predictions"]) == len(FILES)
    for row, before, after in zip(found["predictions"], source, adapted, strict=True):
        assert row["source_prediction"] == CLASSES[int(before.argmax())]
        assert row["adapted_prediction"] == CLASSES[int(after.argmax())]
        assert row["source_confidence"] == pytest.approx(float(before.max()), abs=1e-5)
        assert row["adapted_confidence"] == pytest.approx(float(after.max()), abs=1e-4)


def test_forms_and_json_get_the_predictions_of_the_library(service, expected):
    by_form = service.predict(FILES)
    assert by_form.status == 200
    check(json.loads(by_form.body), expected)
    assert "alpha" not in json.loads(by_form.body)
    text = json.dumps({"images": [base64.b64encode(data).decode() for data in FILES]}).encode()
    by_json = service.ask("POST", "/predict", text, Content_Type="application/json")
    assert by_json.body == by_form.body


def test_alpha_by_layer_comes_on_request(service, expected):
    found = json.loads(service.predict(FILES, "?alpha=true").body)
    assert found["alpha"] == pytest.approx(expected[2], abs=1e-4)
    assert len(found["alpha"]) == 19


def test_the_same_request_gets_the_same_bytes(service):
    assert len({service.predict(FILES).body for _ in range(6)}) == 1


def broken_png() -> bytes:
    return picture(0)[:-40]


def blank_png(side: int) -> bytes:
    file = io.BytesIO()
    Image.new("1", (side, side)).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize(
    ("files", "status", "hint"),
    [
        ([], 400, "no images"),
        ([picture(0), broken_png()], 400, "Image 1: not a readable image"),
        ([b"<svg xmlns='http://www.w3.org/2000/svg'/>"], 400, "unknown format"),
        ([b"%!PS-Adobe-3.0 EPSF-3.0\n"], 400, "unknown format"),
        ([b""], 400, "Image 0"),
        ([blank_png(2000)], 400, "2000x2000 pixels; at most 1 million"),
        ([blank_png(600)] * 3, 400, "Image 2: 600x600 pixels; at most 0.28 million"),
        ([picture(0)] * 17, 413, "At most 16 images"),
        ([picture(0)] * 40, 413, "At most 16 images"),
    ],
)
def test_bad_images_are_refused_with_a_reason(service, files, status, hint):
    found = service.predict(files)
    assert found.status == status
    assert hint in found.error


@pytest.mark.parametrize(
    ("body", "kind", "status", "hint"),
    [
        (b"x", "", 415, "Expected multipart/form-data"),
        (b"x", "image/png", 415, "Expected multipart/form-data"),
        (b"x", "application/x-www-form-urlencoded", 415, "Expected multipart/form-data"),
        (b"x", "multipart/form-data", 400, "Missing boundary"),
        (b"x", "multipart/form-data; boundary=b", 400, "Invalid multipart"),
        (FIELD, "multipart/form-data; boundary=b", 400, "Too many fields"),
        (b"{", "application/json", 400, "Invalid JSON"),
        (b"[" * 50_000 + b"]" * 50_000, "application/json", 400, "recursion limit"),
        (b'{"images": ' + b"[[]," * 60_000, "application/json", 400, "at most 100000 lists"),
        (b'{"images": ["!"]}', "application/json", 400, "not base64"),
        (b'{"images": ["aGk="]}', "application/json", 400, "unknown format"),
        (b'{"images": "aGk="}', "application/json", 400, "at images"),
        (b'{"images": ["http://127.0.0.1/"]}', "application/json", 400, "not base64"),
        (b'{"images": ["aGk="], "path": "/etc/passwd"}', "application/json", 400, "at path"),
        (b'{"images": []}', "application/json", 400, "no images"),
        (json.dumps({"images": ["aGk="] * 17}).encode(), "application/json", 413, "At most 16 images"),
        (b"\xff\xfe", "application/json", 400, "Invalid JSON"),
    ],
)  # fmt: skip
def test_bad_requests_are_refused_with_a_reason(service, body, kind, status, hint):
    found = service.ask("POST", "/predict", body, Content_Type=kind)
    assert found.status == status
    assert hint in found.error
    assert found.headers["content-type"] == "application/json"


def test_compressed_requests_are_refused(service):
    body, kind = form(FILES)
    assert service.ask("POST", "/predict", body, Content_Type=kind, Content_Encoding="gzip").status == 415


def test_the_api_describes_itself_without_other_sites(service):
    found = json.loads(service.ask("GET", "/openapi.json").body)
    assert {"/predict", "/streams", "/v2/models/{name}/infer", "/metrics"} <= found["paths"].keys()
    assert set(found["paths"]["/predict"]["post"]["requestBody"]["content"]) == {
        "multipart/form-data",
        "application/json",
    }
    assert service.ask("GET", "/docs").status == 404
    assert service.ask("GET", "/redoc").status == 404


def test_requests_are_counted_and_logged_with_their_ids(service):
    before = service.metric("images_total")
    body, kind = form(FILES)
    answer = service.ask("POST", "/predict", body, Content_Type=kind, X_Request_ID="my-own.id")
    assert answer.headers["x-request-id"] == "my-own.id"
    assert service.metric("images_total") == before + len(FILES)
    line = next(line for line in service.log() if line.get("id") == "my-own.id")
    assert (line["route"], line["status"], line["images"]) == ("/predict", 200, len(FILES))
    assert {"receive", "queue", "decode", "source", "adapt"} == line["phases"].keys()
    assert service.ask("GET", "/v2", X_Request_ID="a b\u00e9").headers["x-request-id"] != "a b\u00e9"
