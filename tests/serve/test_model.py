"""The network of a worker: plain requests leave nothing behind, streams are guarded, a broken network is noticed."""

import pytest
import torch

from domainadaptor.errors import AdaptationError
from domainadaptor.serve.model import ServedModel
from domainadaptor.serve.settings import read_settings
from domainadaptor.serve.worker import Desk
from tests.conftest import batch
from tests.serve.service import write_checkpoint

IMAGES, OTHERS = batch(6, 3, 16, 16), 3 * batch(9, 3, 16, 16, seed=5)


@pytest.fixture
def made(tmp_path):
    def make(**settings) -> ServedModel:
        write_checkpoint(tmp_path / "c.safetensors")
        return ServedModel(read_settings(network=str(tmp_path / "c.safetensors"), **settings))

    return make


@pytest.mark.parametrize("method", ["source", "domainadaptor-aug", "memo", "tent", "cotta", "rotta", "t3a"])
def test_plain_requests_leave_nothing_behind(made, method):
    """Also for methods that learn online or draw random views."""
    model = made(method=method)
    first = model.predict(IMAGES, None).result.logits
    model.predict(OTHERS, None)
    model.predict(OTHERS, "a stream")
    assert torch.equal(model.predict(IMAGES, None).result.logits, first)
    model.check()


def test_the_guard_of_streams_resets_a_collapsed_one_and_answers_from_the_source(made):
    """Huge steps on one image over and over; `guard=false` cannot switch the guard off."""
    model = made(method="tent", options={"lr": "50", "guard": "false"})
    one = IMAGES[:1].expand(16, -1, -1, -1).clone()
    answers = [model.predict(one, "s") for _ in range(12)]
    collapsed = [answer for answer in answers if answer.result.collapsed]
    assert collapsed
    for answer in collapsed:
        assert answer.result.fell_back
        assert answer.result.note
        torch.testing.assert_close(answer.result.logits, answer.source)


def test_a_stream_that_is_forgotten_starts_over(made):
    model = made(method="tent", options={"lr": "0.05"})
    first = [model.predict(images, "s").result.logits for images in (IMAGES, OTHERS)]
    model.forget("s")
    assert all(
        torch.equal(model.predict(images, "s").result.logits, was)
        for images, was in zip((IMAGES, OTHERS), first, strict=True)
    )


def test_a_network_that_changed_fails_its_check(made):
    model = made()
    model.check()
    with torch.no_grad():
        next(model._network.parameters()).add_(0.5)
    with pytest.raises(AdaptationError):
        model.check()


def test_what_goes_wrong_in_a_worker_is_an_answer(made, caplog):
    model = made()
    desk = Desk(model, read_settings(network="c.safetensors"))

    def fail(error):
        def check():
            raise error

        model.check = check
        head, body = desk.answer({"kind": "check", "id": "seven"}, b"")
        return head["status"], head["headers"].get("retry-after"), body

    assert fail(MemoryError("/tmp/secret")) == (503, "1", b'{"error": "Not enough memory for this request."}')
    assert fail(RuntimeError("/tmp/secret")) == (500, None, b'{"error": "Internal error."}')
    assert all(record.fields == {"id": "seven"} for record in caplog.records)
