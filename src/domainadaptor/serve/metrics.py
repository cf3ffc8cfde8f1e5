"""Counts and times of the service, for Prometheus."""

from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """What `/metrics` shows. All names start with `domainadaptor_`."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        common: Any = {"namespace": "domainadaptor", "registry": self._registry}
        self.requests = Counter("requests", "Answers by route and status.", ["route", "status"], **common)
        self.seconds = Histogram("request_seconds", "From headers to answer.", ["route"], buckets=_SECONDS, **common)
        self.phases = Histogram(
            "phase_seconds", "Receive, queue, decode, source, adapt, calibrate.", ["phase"], buckets=_SECONDS, **common
        )
        self.images = Counter("images", "Images that were predicted.", **common)
        self.fell_back = Counter("fall_backs", "Batches that only the source model predicted.", **common)
        self.guard_resets = Counter("guard_resets", "Streams that the guard reset.", **common)
        self._common = common

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Show what a function returns at the time."""
        Gauge(name, text, **self._common).set_function(value)

    def page(self) -> bytes:
        """Return everything in the text format of Prometheus."""
        return generate_latest(self._registry)
