"""The pool of worker processes: a bounded queue in front of them, a time limit, and a restart when one ends."""

import json
import logging
import math
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Protocol

from domainadaptor.errors import AdaptationError
from domainadaptor.serve.settings import PREFIX, ServeSettings

_LOOK_EVERY = 0.5  # seconds between looks at an idle worker
_CHECK_EVERY = 10.0  # seconds between checks of an idle worker's predictions
_START_LIMIT = 300.0  # seconds for loading the network
_LONGEST_PAUSE = 30.0  # seconds before a worker that cannot start is tried again
_TRIES = 2  # a request whose worker ended is tried once more, unless it belongs to a stream

_log = logging.getLogger("domainadaptor.serve.pool")


class Busy(Exception):
    """The queue is full; the number is the seconds after which it may not be."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(retry_after)
        self.retry_after = retry_after


class Unavailable(Exception):
    """No worker can answer at the moment."""


class WorkerLost(Exception):
    """The worker of this request ended before it answered."""


class OutOfTime(Exception):
    """The worker needed longer than the time limit and was ended."""


@dataclass(frozen=True)
class Place:
    """A worker process: the one with this number, as started for the n-th time."""

    worker: int
    start: int


@dataclass(eq=False)
class Job:
    """A request on its way to a worker; `place` is set where only that process can answer it.

    `taken` is the process that has begun it.
    """

    order: dict[str, Any]
    body: bytes = b""
    place: Place | None = None
    taken: Place | None = None
    answer: "Future[tuple[dict[str, Any], bytes]]" = field(default_factory=Future)
    queued: float = field(default_factory=time.perf_counter)
    waited: float = 0.0
    tries: int = 0


class Worker(Protocol):
    """What the pool asks of a worker: a process of this machine, or a replica on a cluster."""

    @property
    def pid(self) -> int | None:
        """The process id, if it is of this machine."""

    @property
    def is_alive(self) -> bool:
        """Whether it still runs."""

    def wait_until_ready(self, closing: Callable[[], bool]) -> dict[str, Any]:
        """Return what it says about its network once it has loaded it."""

    def ask(self, order: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        """Send an order and return the reply; raise OutOfTime or WorkerLost."""

    def end(self) -> None:
        """End it."""


class WorkerPool:
    """Workers, each tended by a thread of this process."""

    def __init__(self, settings: ServeSettings, start: "Callable[[ServeSettings], Worker] | None" = None) -> None:
        self._settings, self._start = settings, start or _Process
        self._jobs: deque[Job] = deque()
        self._change = threading.Condition()
        self._ready: dict[int, Place] = {}
        self._seconds = 0.0  # moving average of what a request takes
        self._closing = False
        self._started: Future[dict[str, Any]] = Future()
        self._keepers = [
            threading.Thread(target=self._keep, args=(number,), daemon=True) for number in range(settings.workers)
        ]
        self.restarts = 0

    def start(self) -> dict[str, Any]:
        """Start all workers, wait for the first and return what it says about its network.

        Raises:
            AdaptationError: The network cannot be loaded or served.
        """
        for keeper in self._keepers:
            keeper.start()
        return self._started.result()

    def close(self) -> None:
        """End all workers; call it when no request is left."""
        with self._change:
            self._closing = True
            self._change.notify_all()
        for keeper in self._keepers:
            keeper.join()

    @property
    def places(self) -> list[Place]:
        """The workers that are ready."""
        return list(self._ready.values())

    @property
    def waiting(self) -> int:
        """How many requests wait for a worker."""
        return len(self._jobs)

    def check_room(self) -> None:
        """Raise Busy if the queue is full, or Unavailable if no worker is ready."""
        if not self._ready or self._closing:
            raise Unavailable
        if len(self._jobs) >= self._settings.queue:
            raise Busy(max(1, math.ceil(self._seconds * len(self._jobs) / self._settings.workers)))

    def submit(self, job: Job, *, internal: bool = False) -> Job:
        """Put a job in the queue; only those of the service itself may exceed its bound."""
        with self._change:
            if not internal:
                self.check_room()
            self._jobs.append(job)
            self._change.notify_all()
        return job

    def discard(self, job: Job) -> None:
        """Drop a job whose client has left; if a worker has begun it, it is not tried again."""
        with self._change, suppress(ValueError):
            job.tries = _TRIES
            self._jobs.remove(job)

    def _keep(self, number: int) -> None:
        """Keep one worker running."""
        start, pause = 0, 0.0
        while not self._closing:
            place = Place(number, start := start + 1)
            self.restarts += start > 1
            worker = self._start(self._settings)
            about = {"worker": number, "pid": worker.pid}
            try:
                described = worker.wait_until_ready(lambda: self._closing)
                self._welcome(place, described)
                _log.info("worker ready", extra={"fields": about})
                pause = 0.0
                self._serve(worker, place)
            except (WorkerLost, AdaptationError) as error:
                if place not in self.places:
                    pause = min(_LONGEST_PAUSE, max(1.0, 2 * pause))
                    self._fail_start(error)
                if not self._closing:
                    _log.error("worker ended", extra={"fields": {**about, "reason": str(error)}})
            finally:
                worker.end()
                self._leave(place)
            with self._change:
                self._change.wait_for(lambda: self._closing, pause)

    def _welcome(self, place: Place, described: dict[str, Any]) -> None:
        with self._change:
            self._ready[place.worker] = place
            if not self._started.done():
                self._started.set_result(described)

    def _fail_start(self, error: Exception) -> None:
        """Give up on requests that wait for a worker which cannot be started."""
        with self._change:
            if not self._started.done():
                self._started.set_exception(AdaptationError(str(error)))
            while self._jobs and not self._ready:
                _settle(self._jobs.popleft(), Unavailable())

    def _leave(self, place: Place) -> None:
        """Tell the requests that only this process could answer."""
        with self._change:
            self._ready = {number: ready for number, ready in self._ready.items() if ready != place}
            for job in [job for job in self._jobs if job.place == place]:
                self._jobs.remove(job)
                _settle(job, WorkerLost())

    def _serve(self, worker: Worker, place: Place) -> None:
        """Answer requests until the pool is closed; raise WorkerLost when the process has ended or must end."""
        check_at = time.monotonic() + _CHECK_EVERY
        while not self._closing:
            if time.monotonic() >= check_at:
                if self._ask(worker, Job({"kind": "check"})) != 200:
                    raise WorkerLost("the network failed its check")
                check_at = time.monotonic() + _CHECK_EVERY
            job = self._next(place)
            if job is None and not worker.is_alive:
                raise WorkerLost("the process was ended from outside")
            if job is not None and self._ask(worker, job) == 500:
                check_at = 0.0

    def _next(self, place: Place) -> Job | None:
        """Return the first request that this worker may answer; None if there is none for a while."""

        def mine() -> Job | None:
            return next((job for job in self._jobs if job.place in (None, place)), None)

        with self._change:
            self._change.wait_for(lambda: self._closing or mine() is not None, _LOOK_EVERY)
            if (job := mine()) is not None:
                self._jobs.remove(job)
                job.taken = place
            return job

    def _ask(self, worker: Worker, job: Job) -> int:
        """Let the worker answer, and return the status."""
        job.tries += 1
        start = time.perf_counter()
        job.waited = start - job.queued
        try:
            head, body = worker.ask(job.order, job.body)
        except OutOfTime as error:
            _settle(job, error)
            raise WorkerLost("a request took longer than the time limit") from None
        except WorkerLost as error:
            if job.place is None and job.tries < _TRIES and job.order["kind"] != "check":
                with self._change:
                    self._jobs.appendleft(job)
                    self._change.notify_all()
            else:
                _settle(job, error)
            raise
        if job.body:
            self._seconds += 0.2 * (time.perf_counter() - start - self._seconds)
        _settle(job, (head, body))
        return int(head["status"])


class _Process:
    """A worker process and the connection to it."""

    def __init__(self, settings: ServeSettings) -> None:
        self._limit = settings.time_limit
        ours, theirs = socket.socketpair()
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):  # a stopped process must not hold a request for ever
            ours.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", math.ceil(self._limit), 0))
        environment = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        environment |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONSAFEPATH": "1"}
        environment["OMP_NUM_THREADS"] = str(settings.threads)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "domainadaptor.serve.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=environment,
                stdin=subprocess.DEVNULL,
            )
        self._connection = Connection(ours.detach())
        self._connection.send_bytes(settings.model_dump_json(exclude={"token"}).encode())

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def wait_until_ready(self, closing: Callable[[], bool]) -> dict[str, Any]:
        """Return what the worker says about its network once it has loaded it."""
        try:
            until = time.monotonic() + _START_LIMIT
            while not self._connection.poll(_LOOK_EVERY):
                if closing() or time.monotonic() > until:
                    raise WorkerLost("it did not start in time")
            described: dict[str, Any] = json.loads(self._connection.recv_bytes())
        except (EOFError, OSError):
            raise WorkerLost("it ended while it started; its log has the reason") from None
        if "error" in described:
            raise AdaptationError(described["error"])
        return described

    def ask(self, order: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        """Send an order and return the reply; raise OutOfTime or WorkerLost."""
        try:
            self._connection.send_bytes(json.dumps(order).encode())
            self._connection.send_bytes(body)
            if not self._connection.poll(self._limit):
                raise OutOfTime
            return json.loads(self._connection.recv_bytes()), self._connection.recv_bytes()
        except (EOFError, OSError):
            raise WorkerLost("it ended during a request") from None

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._connection.close()


def _settle(job: Job, outcome: "tuple[dict[str, Any], bytes] | Exception") -> None:
    with suppress(InvalidStateError):  # no caller waits any more
        if isinstance(outcome, Exception):
            job.answer.set_exception(outcome)
        else:
            job.answer.set_result(outcome)
