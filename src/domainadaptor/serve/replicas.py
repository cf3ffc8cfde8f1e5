"""Workers on Ray Serve, in place of worker processes of this machine.

Each is an application of its own with one replica, so that a request, and every batch of a stream, goes to the replica
that the pool has chosen. Clients talk to the same front process as ever; Ray Serve listens to none of them.
"""

import secrets
import threading
from collections.abc import Callable
from typing import Any

from domainadaptor.errors import AdaptationError
from domainadaptor.lab.cluster.start import Workers
from domainadaptor.serve.pool import OutOfTime, WorkerLost
from domainadaptor.serve.settings import ServeSettings

_PING = 10.0  # seconds in which an idle replica answers
_deploying = threading.Lock()  # Ray Serve takes one thread at a time


class _Desk:
    """A replica: a worker's desk, and a mark that another start of it does not have."""

    def __init__(self, settings: str) -> None:
        import torch

        from domainadaptor.lab.allocator import keep_freed_memory
        from domainadaptor.serve.model import ServedModel
        from domainadaptor.serve.worker import Desk

        keep_freed_memory()
        own = ServeSettings.model_validate_json(settings)
        self.mark = secrets.token_hex(8)
        self._set_threads = lambda: torch.set_num_threads(own.threads)
        self._set_threads()
        try:
            model = ServedModel(own)
            self._described, self._desk = model.describe() | {"mark": self.mark}, Desk(model, own)
        except AdaptationError as error:
            self._described = {"error": str(error)}

    def describe(self) -> dict[str, Any]:
        """Return what is served, or why it cannot be."""
        return self._described

    def answer(self, mark: str, order: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes] | None:
        """Answer an order as a worker process does; None if it is meant for an earlier start of this replica."""
        if mark != self.mark:
            return None
        self._set_threads()
        return self._desk.answer(order, body)

    def is_still(self, mark: str) -> bool:
        """Return whether this is the start that had the mark."""
        return mark == self.mark


class Replica:
    """A worker of the pool that runs on Ray Serve."""

    pid = None  # it may be on another machine

    def __init__(self, settings: ServeSettings, workers: Workers) -> None:
        from ray import serve

        self._limit, self._name = settings.time_limit, f"worker-{secrets.token_hex(4)}"
        reserved = workers.reserved()
        own = {"name": "desk", "num_replicas": 1, "max_ongoing_requests": 1, "ray_actor_options": reserved}
        with _deploying:
            made = serve.deployment(_Desk, **own).bind(settings.model_dump_json(exclude={"token"}))
            self._handle = serve.run(made, name=self._name, route_prefix=None)
        self._mark = ""

    @property
    def is_alive(self) -> bool:
        """Whether the replica answers and was not started again."""
        try:
            return bool(self._call("is_still", _PING, self._mark))
        except (OutOfTime, WorkerLost):
            return False

    def wait_until_ready(self, closing: Callable[[], bool]) -> dict[str, Any]:
        """Return what the replica says about its network."""
        described: dict[str, Any] = self._call("describe", _PING)
        if "error" in described:
            raise AdaptationError(described["error"])
        self._mark = described.pop("mark")
        return described

    def ask(self, order: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        """Send an order and return the reply; raise OutOfTime or WorkerLost."""
        reply: tuple[dict[str, Any], bytes] | None = self._call("answer", self._limit, self._mark, order, body)
        if reply is None:
            raise WorkerLost("its replica was started again")
        return reply

    def end(self) -> None:
        """End the replica."""
        from ray import serve

        with _deploying:
            serve.delete(self._name)

    def _call(self, method: str, limit: float, *given: Any) -> Any:
        import ray

        try:
            return getattr(self._handle, method).remote(*given).result(timeout_s=limit)
        except TimeoutError:
            raise OutOfTime from None
        except ray.exceptions.RayError as error:
            raise WorkerLost(f"its replica was lost: {str(error).splitlines()[0]}") from None
