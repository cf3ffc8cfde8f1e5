"""Killed and stopped workers, clients that leave, more requests than fit, and a shutdown in the middle."""

import asyncio
import json
import signal
import time

from tests.serve.service import Service, exchange, form, picture, poisson, raw_request, wait_for, write_checkpoint
from tests.serve.test_sessions import open_stream

FILES = [picture(at) for at in range(16)]
BODY, KIND = form(FILES)
REQUEST = raw_request("POST", "/predict", BODY, Content_Type=KIND)


def test_a_worker_that_does_not_answer_is_replaced(service):
    """A stopped process stands for one that hangs; the limit of these tests is ten seconds."""
    worker = service.workers()[0]
    worker.suspend()

    async def run() -> list:
        return await asyncio.gather(*(exchange(service.port, REQUEST) for _ in range(4)))

    answers = asyncio.run(run())
    assert {answer.status for answer in answers} <= {200, 504}
    assert 200 in {answer.status for answer in answers}
    wait_for(lambda: not worker.is_running())
    service.wait_for_workers(2)
    assert worker.pid not in [process.pid for process in service.workers()]


def test_more_requests_than_fit_are_refused_at_once_and_the_rest_is_answered(service):
    first = service.predict(FILES)
    assert first.status == 200
    right = first.body
    answers = asyncio.run(poisson(service.port, [REQUEST] * 60, rate=1000))
    assert {answer.status for answer in answers} == {200, 429}
    for answer in answers:
        if answer.status == 200:
            assert answer.body == right
        else:
            assert int(answer.headers["retry-after"]) >= 1
            assert "wait" in answer.error
    assert service.predict(FILES).body == right


def test_work_for_clients_that_have_left_is_dropped(service):
    """Clients that fill the queue and leave do not keep others waiting."""

    async def leave() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", service.port)
        writer.write(REQUEST)
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.transport.abort()

    async def run() -> None:
        await asyncio.gather(*(leave() for _ in range(12)))

    before, logged = service.metric("images_total"), len(service.log())
    asyncio.run(run())
    time.sleep(0.5)
    assert service.metric("queue ") == 0
    statuses = {line["status"] for line in service.log()[logged:] if line.get("route") == "/predict"}
    assert statuses <= {200, 429, 499}  # 499, not 500: nothing went wrong here
    assert service.metric("images_total") - before < 12 * len(FILES)
    assert service.predict(FILES).status == 200


def test_poisoned_and_crashing_neighbours_change_nothing(service):
    """The same bytes alone and among sixteen others that send nonsense, refused images and streams of noise."""
    mine = [raw_request("POST", "/predict", _form(at), Content_Type=KIND) for at in range(8)]
    alone = [service.send(data).body for data in mine]
    id = open_stream(service)
    noise, kind = form([picture(900 + at) for at in range(16)])
    hostile = [
        raw_request("POST", f"/predict?stream={id}", noise, Content_Type=kind),
        raw_request("POST", "/predict", noise, Content_Type=kind),
        raw_request("POST", "/predict", noise[:-200], Content_Type=kind),
        raw_request(
            "POST", "/v2/models/resnet20/infer", b'{"inputs": [' + b"[" * 9000, Content_Type="application/json"
        ),
    ]

    async def neighbour(at: int, until: asyncio.Event) -> None:
        while not until.is_set():
            await exchange(service.port, hostile[at % len(hostile)])
            await asyncio.sleep(0.1)

    async def run() -> list[bytes]:
        until = asyncio.Event()
        neighbours = [asyncio.create_task(neighbour(at, until)) for at in range(16)]
        found = []
        for data in mine:
            while (answer := await exchange(service.port, data)).status == 429:
                await asyncio.sleep(0.01)
            found.append(answer.body)
        until.set()
        await asyncio.gather(*neighbours)
        return found

    assert asyncio.run(run()) == alone


def _form(seed: int):
    return form([picture(100 * seed + at) for at in range(3)])[0]


def test_a_shutdown_answers_what_was_accepted(network, folder):
    service = Service(folder, "--workers", "1").wait()

    async def run() -> list:
        asked = [asyncio.create_task(exchange(service.port, REQUEST)) for _ in range(4)]
        await asyncio.sleep(0.1)
        service.process.send_signal(signal.SIGTERM)
        return await asyncio.gather(*asked)

    answers = asyncio.run(run())
    workers = service.workers() if service.process.poll() is None else []
    assert [answer.status for answer in answers] == [200] * 4
    assert len({answer.body for answer in answers}) == 1
    assert service.stop() == 0
    assert not any(worker.is_running() for worker in workers)
    assert json.dumps("Traceback") not in service.text()


def test_the_health_check_fails_while_the_model_cannot_be_loaded(network, tmp_path):
    write_checkpoint(file := tmp_path / "network.safetensors")
    service = Service(tmp_path, "--workers", "1").wait()
    try:
        assert service.ask("GET", "/v2/health/ready").status == 200
        file.rename(hidden := tmp_path / "hidden")
        service.workers()[0].kill()
        wait_for(lambda: service.ask("GET", "/v2/health/ready").status == 503)
        assert service.ask("GET", "/v2/models/resnet20/ready").status == 503
        assert service.ask("GET", "/v2/health/live").status == 200
        refused = service.predict(FILES)
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert refused.seconds < 5
        hidden.rename(file)
        service.wait_for_workers(1)
        assert service.predict(FILES).status == 200
        assert service.ask("GET", "/v2/health/ready").status == 200
    finally:
        assert service.stop() == 0


def test_a_failed_start_ends_with_the_reason(network, folder):
    service = Service(folder, "--workers", "1", "--method", "tent", "--option", "lr=-1")
    assert service.process.wait(120) == 1
    assert "error: lr=-1: expected a finite number" in service.text()
    assert "Traceback" not in service.text()
    service.stop()
