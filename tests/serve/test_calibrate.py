"""`POST /calibrate`: a network calibrated on the images of a request, by a name that only its client knows."""

import io
import json
import os
import signal

import numpy as np
import pytest
import torch
from PIL import Image

import domainadaptor as da
from domainadaptor.serve.model import ServedModel
from domainadaptor.serve.settings import read_settings
from tests.conftest import batch
from tests.serve.conftest import LIMITS
from tests.serve.service import form, picture, write_checkpoint

FILES = [picture(100 + at) for at in range(16)]
OTHERS = [picture(300 + at) for at in range(5)]


def calibrate(service, files=FILES, query="", expected=201):
    body, kind = form(files)
    answer = service.ask("POST", f"/calibrate{query}", body, Content_Type=kind)
    assert answer.status == expected, answer
    return json.loads(answer.body)


def pixels(files, preprocessing):
    transform = preprocessing.transform()
    return torch.stack([transform(Image.open(io.BytesIO(data)).convert("RGB")) for data in files])


def confidences(answer, which="adapted"):
    assert answer.status == 200, answer
    return [row[f"{which}_confidence"] for row in json.loads(answer.body)["predictions"]]


@pytest.mark.parametrize("share", [None, 0.5])
def test_a_calibrated_model_predicts_as_the_library_does(service, network, share):
    net, preprocessing = network
    plain = da.calibrate(net, pixels(FILES, preprocessing), share=share)
    made = calibrate(service, query="" if share is None else f"?share={share}")
    assert made["images"] == 16
    assert made["note"] is None
    assert len(made["layers"]) == 19
    assert share is None or {layer["share"] for layer in made["layers"].values()} == {share}
    images = pixels(OTHERS, preprocessing)
    found = service.predict(OTHERS, f"?model={made['name']}")
    assert confidences(found) == pytest.approx(plain(images).softmax(1).max(1).values.tolist(), abs=2e-4)
    assert confidences(found, "source") == pytest.approx(net(images).softmax(1).max(1).values.tolist(), abs=2e-4)
    assert confidences(service.predict(OTHERS[:1], f"?model={made['name']}")) == confidences(found)[:1]


def test_the_tensor_client_uses_it_by_its_name(service, network):
    http = pytest.importorskip("tritonclient.http", reason="the extra dev has tritonclient[http]")
    net, preprocessing = network
    made = calibrate(service)["name"]
    images = batch(5, 3, 16, 16)
    given = http.InferInput("images", list(images.shape), "FP32")
    given.set_data_from_numpy(images.numpy())
    with http.InferenceServerClient(f"localhost:{service.port}") as client:
        assert client.is_model_ready(made)
        about = client.get_model_metadata(made)
        assert (about["name"], about["parameters"]["method"]) == (made, "calibrate")
        found = client.infer(made, [given])
    assert found.get_response()["model_name"] == made
    plain = da.calibrate(net, pixels(FILES, preprocessing))
    np.testing.assert_allclose(found.as_numpy("logits"), plain(images).detach().numpy(), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(found.as_numpy("source_logits"), net(images).detach().numpy(), rtol=1e-3, atol=1e-4)


def test_plain_requests_do_not_notice_it(service):
    before = service.predict(OTHERS).body
    calibrate(service)
    assert service.predict(OTHERS).body == before
    assert service.predict(OTHERS, "?model=resnet20").body == before


def test_deleted_models_are_gone_and_invented_ones_were_never_there(service):
    name = calibrate(service)["name"]
    assert service.ask("DELETE", f"/models/{name}").status == 204
    for answer in (service.predict(OTHERS, f"?model={name}"), service.ask("DELETE", f"/models/{name}")):
        assert answer.status == 410
        assert "This model has ended" in answer.error
    stream = json.loads(service.ask("POST", "/streams").body)["id"]
    for invented in ("x", "..%2f..", name[:-4] + "AAAA", stream):
        assert service.predict(OTHERS, f"?model={invented}").status == 404
        assert service.ask("DELETE", f"/models/{invented}").status == 404
    assert service.ask("DELETE", "/models/resnet20").status == 404
    made = calibrate(service)["name"]
    answer = service.predict(OTHERS, f"?model={made}&stream={stream}")
    assert answer.status == 400
    assert "has no streams" in answer.error
    assert service.predict(OTHERS, f"?stream={made}").status == 404


def test_the_least_recently_used_model_makes_room(service):
    names = [calibrate(service)["name"] for _ in range(LIMITS["max_models"])]
    assert service.predict(OTHERS, f"?model={names[0]}").status == 200
    calibrate(service)
    assert service.predict(OTHERS, f"?model={names[1]}").status == 410
    assert service.predict(OTHERS, f"?model={names[0]}").status == 200
    assert service.metric("models ") == LIMITS["max_models"]


def test_what_cannot_be_calibrated_is_refused_and_makes_no_room(service):
    name = calibrate(service)["name"]
    for _ in range(LIMITS["max_models"]):
        assert "not a readable image" in calibrate(service, [b"x"], expected=400)["error"]
    calibrate(service, [], expected=400)
    assert "A parameter in the URL" in calibrate(service, query="?share=2", expected=400)["error"]
    assert service.ask("POST", "/calibrate", b"x", Content_Type="image/png").status == 415
    assert "16 images" in calibrate(service, [*FILES, *OTHERS], expected=413)["error"]
    assert service.predict(OTHERS, f"?model={name}").status == 200


def test_few_images_are_noted(service):
    assert calibrate(service, FILES[:3])["note"].startswith("3 images are few for the statistics of a domain")


def test_a_killed_worker_takes_its_models_with_it_and_no_others(service):
    names = [calibrate(service)["name"] for _ in range(LIMITS["max_models"])]
    os.kill(service.workers()[0].pid, signal.SIGKILL)
    service.wait_for_workers(1)
    statuses = {service.predict(OTHERS, f"?model={name}").status for name in names}
    assert statuses <= {200, 410}
    service.wait_for_workers(2)
    assert service.predict(OTHERS, f"?model={calibrate(service)['name']}").status == 200


@pytest.fixture
def model(tmp_path):
    write_checkpoint(tmp_path / "c.safetensors")
    return ServedModel(read_settings(network=str(tmp_path / "c.safetensors")))


def test_a_model_takes_the_memory_of_its_statistics_only(model):
    model.calibrate(batch(16, 3, 16, 16), None, "mine")
    shared = {parameter.data_ptr() for parameter in model._network.parameters()}
    plain = model._calibrated["mine"].source
    assert all(parameter.data_ptr() in shared for parameter in plain.parameters())
    model.predict(batch(4, 3, 16, 16), None, "mine")
    model.check()


def test_a_forgotten_model_is_not_kept(model):
    model.calibrate(batch(16, 3, 16, 16), None, "mine")
    model.forget("mine")
    assert model._calibrated == {}
