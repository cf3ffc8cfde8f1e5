"""Streams learn from batch to batch, each by itself; ended ones say so."""

import asyncio
import io
import json

import pytest
import torch
from PIL import Image

import domainadaptor as da
from domainadaptor.serve import sessions
from domainadaptor.serve.pool import Place
from domainadaptor.serve.sessions import NoSuchSession, SessionEnded, Sessions
from tests.serve.service import exchange, form, parse_answer, picture, raw_request

BATCHES = [[picture(10 * at + k) for k in range(6)] for at in range(4)]


def open_stream(service) -> str:
    answer = service.ask("POST", "/streams")
    assert answer.status == 201
    return json.loads(answer.body)["id"]


def confidences(answer) -> list[float]:
    assert answer.status == 200, answer
    return [row["adapted_confidence"] for row in json.loads(answer.body)["predictions"]]


@pytest.fixture(scope="module")
def expected(network):
    net, preprocessing = network
    adaptor = da.adapt(net, "tent", reset_every=1000, guard=True)

    def images(files):
        return torch.stack([preprocessing.transform()(Image.open(io.BytesIO(data)).convert("RGB")) for data in files])

    return [adaptor(images(files)).softmax(1).max(1).values.tolist() for files in BATCHES]


def test_a_stream_learns_like_an_online_adaptor(service, expected):
    id = open_stream(service)
    found = [confidences(service.predict(files, f"?stream={id}")) for files in BATCHES]
    assert found == [pytest.approx(values, abs=2e-4) for values in expected]
    assert found[1] != confidences(service.predict(BATCHES[1], f"?stream={open_stream(service)}"))


def test_streams_and_plain_requests_do_not_meet(service):
    alone = open_stream(service)
    first = [service.predict(files, f"?stream={alone}").body for files in BATCHES]
    plain = service.predict(BATCHES[0]).body
    one, other = open_stream(service), open_stream(service)
    mixed = []
    for files in BATCHES:
        mixed.append(service.predict(files, f"?stream={one}").body)
        service.predict(list(reversed(BATCHES[3])), f"?stream={other}")
        assert service.predict(BATCHES[0]).body == plain
    assert mixed == first


def test_a_reset_stream_starts_over(service):
    id = open_stream(service)
    first = [service.predict(files, f"?stream={id}").body for files in BATCHES[:2]]
    assert service.ask("POST", f"/streams/{id}/reset").status == 204
    assert [service.predict(files, f"?stream={id}").body for files in BATCHES[:2]] == first


def test_closed_and_pushed_out_streams_are_gone_and_invented_ones_were_never_there(service):
    id = open_stream(service)
    assert service.ask("DELETE", f"/streams/{id}").status == 204
    for answer in (
        service.predict(BATCHES[0], f"?stream={id}"),
        service.ask("DELETE", f"/streams/{id}"),
        service.ask("POST", f"/streams/{id}/reset"),
    ):
        assert answer.status == 410
        assert "Start a new one" in answer.error
    oldest = open_stream(service)
    others = [open_stream(service) for _ in range(4)]  # as many as the service allows
    assert service.predict(BATCHES[0], f"?stream={oldest}").status == 410
    assert service.predict(BATCHES[0], f"?stream={others[0]}").status == 200
    for invented in ("x", "", "..%2f..", id[:-4] + "AAAA", "A" * 40):
        assert service.predict(BATCHES[0], f"?stream={invented}").status == 404
    assert service.metric("streams ") == 4


def test_a_stream_that_ends_while_its_batch_is_sent_is_gone(service):
    """It must not start over from the source model as if nothing had happened."""
    id = open_stream(service)
    assert service.predict(BATCHES[0], f"?stream={id}").status == 200
    body, kind = form(BATCHES[1])
    data = raw_request("POST", f"/predict?stream={id}", body, Content_Type=kind)

    async def run():
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        writer.write(data[:-100])
        await asyncio.sleep(0.3)
        closed = await exchange(service.port, raw_request("DELETE", f"/streams/{id}"))
        writer.write(data[-100:])
        received = parse_answer(await reader.read(-1))
        writer.close()
        return closed.status, received.status

    assert asyncio.run(run()) == (204, 410)


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(sessions.time, "monotonic", lambda: now[0])
    return now


A, B = Place(0, 1), Place(1, 1)


def test_the_least_recently_used_stream_makes_room(clock):
    ended = []
    table = Sessions("stream", 2, 100.0, lambda name, place: ended.append(name))
    first, second = table.open([A]), table.open([A])
    assert table.find(first, [A]) == A
    third = table.open([A])
    assert ended == [second]
    assert table.find(first, [A]) == table.find(third, [A]) == A
    with pytest.raises(SessionEnded):
        table.find(second, [A])


def test_an_unused_stream_ends(clock):
    ended = []
    table = Sessions("stream", 9, 100.0, lambda name, place: ended.append(name))
    used, unused = table.open([A]), table.open([A])
    clock[0] = 60.0
    table.find(used, [A])
    clock[0] = 120.0
    with pytest.raises(SessionEnded):
        table.find(unused, [A])
    table.sweep([A])
    assert ended == [unused]
    assert table.find(used, [A]) == A


def test_streams_spread_over_workers_and_end_with_them(clock):
    table = Sessions("stream", 9, 100.0, lambda name, place: None)
    names = [table.open([A, B]) for _ in range(4)]
    found = [table.find(name, [A, B]) for name in names]
    assert sorted(place.worker for place in found) == [0, 0, 1, 1]
    again = Place(0, 2)
    for name, place in zip(names, found, strict=True):
        if place == B:
            assert table.find(name, [again, B]) == B
        else:
            with pytest.raises(SessionEnded):
                table.find(name, [again, B])
    with pytest.raises(NoSuchSession):
        Sessions("stream", 9, 100.0, lambda name, place: None).find(names[0], [A, B])
