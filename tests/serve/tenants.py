"""Neighbours: the same requests alone and among hostile ones, and while workers are killed."""

import asyncio
import json
import time
from collections import Counter

from tests.serve.load import REFUSED, Load, is_right, judge
from tests.serve.service import Answer, exchange, form, picture, poisson, raw_request

STREAM_BATCHES = 4


async def patient(port: int, data: bytes) -> Answer:
    """Ask until the service has room."""
    while (answer := await exchange(port, data)).status in REFUSED:
        await asyncio.sleep(0.02)
    return answer


async def stream_answers(load: Load, first: int) -> list[bytes] | None:
    """Return the answers of a stream of some batches; None if it was lost with its worker."""
    port, found = load.service.port, []
    id = json.loads((await patient(port, raw_request("POST", "/streams"))).body)["id"]
    for at in range(STREAM_BATCHES):
        body, kind = form(load.batches[(first + at) % len(load.batches)])
        answer = await patient(port, raw_request("POST", f"/predict?stream={id}", body, Content_Type=kind))
        if answer.status == 410:
            return None
        found.append(answer.body if answer.status == 200 else b"")
    await exchange(port, raw_request("DELETE", f"/streams/{id}"))
    return found


def hostile_requests(stream: str) -> list[bytes]:
    noise, kind = form([picture(900 + at) for at in range(16)])
    return [
        raw_request("POST", f"/predict?stream={stream}", noise, Content_Type=kind),
        raw_request("POST", "/predict", noise, Content_Type=kind),
        raw_request("POST", "/predict", noise[:-200], Content_Type=kind),
        raw_request("POST", "/v2/models/resnet20/infer", b'{"inputs": [' + b"[" * 9000),
    ]


class Tenants:
    """Promise 17: requests and streams of eight tenants, beside eight that send noise and nonsense, as workers die."""

    def __init__(self, load: Load, count: int) -> None:
        self._load, self._port = load, load.service.port
        self._asks = load.asks(count, seed=3)
        self._streams = iter(range(max(1, count // (10 * STREAM_BATCHES))))
        self._expected: list[list[bytes] | None] = []
        self.counted: Counter[str] = Counter()

    async def run(self, kill_every: float | None = None) -> dict[str, int]:
        """Return how many answers were right, and how many were not, by status."""
        self._expected = [await stream_answers(self._load, first) for first in range(len(self._load.batches))]
        opened = await patient(self._port, raw_request("POST", "/streams"))
        hostile = hostile_requests(json.loads(opened.body)["id"])
        others = [asyncio.create_task(self._neighbour(hostile[at % len(hostile)])) for at in range(8)]
        others += [asyncio.create_task(self._kill(kill_every))] if kill_every else []
        await asyncio.gather(*(self._tenant() for _ in range(6)), *(self._streamer() for _ in range(2)))
        for task in others:
            task.cancel()
        return dict(self.counted)

    async def _tenant(self) -> None:
        for ask in self._asks:
            answer = await patient(self._port, ask.data)
            self.counted["right" if is_right(ask, answer) else f"wrong {answer.status}"] += 1

    async def _streamer(self) -> None:
        for first in self._streams:
            at = first % len(self._expected)
            while (found := await stream_answers(self._load, at)) is None:
                self.counted["streams restarted"] += 1
            self.counted["streams right" if found == self._expected[at] else "wrong stream"] += 1

    async def _neighbour(self, request: bytes) -> None:
        while True:
            await exchange(self._port, request)
            await asyncio.sleep(0.05)

    async def _kill(self, every: float) -> None:
        while True:
            await asyncio.sleep(every)
            if workers := self._load.service.workers():
                workers[self.counted["kills"] % len(workers)].kill()
                self.counted["kills"] += 1


def kill_workers(load: Load, kills: int, workers: int) -> dict[str, float]:
    """Under 40 % of the capacity, end one worker after the other; each time, only its streams are gone."""
    service, port = load.service, load.service.port
    restarts, gone = [], []
    body, kind = form(load.batches[0])

    async def asked(stream: str) -> int:
        return (await patient(port, raw_request("POST", f"/predict?stream={stream}", body, Content_Type=kind))).status

    async def kill() -> None:
        for number in range(kills):
            opened = [await patient(port, raw_request("POST", "/streams")) for _ in range(workers)]
            ids = [json.loads(answer.body)["id"] for answer in opened]
            assert [await asked(id) for id in ids] == [200] * workers
            service.workers()[number % workers].kill()
            start = time.perf_counter()
            await asyncio.sleep(1)  # an idle worker is looked at twice a second
            statuses = [await asked(id) for id in ids]
            gone.append(statuses.count(410) == 1 and statuses.count(200) == workers - 1)
            for id in ids:
                await exchange(port, raw_request("DELETE", f"/streams/{id}"))
            await asyncio.to_thread(service.wait_for_workers, workers)
            restarts.append(time.perf_counter() - start)

    async def run() -> tuple[list, list[Answer]]:
        killing, asks, answers = asyncio.create_task(kill()), [], []
        while not killing.done():
            some = list(load.asks(10, seed=100 + len(asks)))
            asks += some
            answers += await poisson(port, [ask.data for ask in some], 0.4 * load.capacity, seed=len(asks))
        await killing
        return asks, answers

    counted = judge(*asyncio.run(run()))
    return {**counted, "kills": kills, "streams": sum(gone), "slowest_restart": max(restarts)}
