"""Streams: which worker process holds the adaptor of each, and when it ends."""

import hmac
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from domainadaptor.serve.pool import Place

_PART = 24  # characters of both parts of an id: a random one, and its tag


class NoSuchStream(Exception):
    """No stream ever had this id."""


class StreamEnded(Exception):
    """The stream was closed, not used for too long, made room for another, or was lost with its worker."""


@dataclass
class _Stream:
    place: Place
    used: float


class Streams:
    """Open streams by id, least recently used first.

    An id is random and signed with a key of this process, so that an ended stream can be told from an invented one
    without remembering it.

    Args:
        most: How many may be open; one more ends the least recently used.
        timeout: Seconds after which an unused one ends.
        forget: Called with the id and the place of each that ends.
    """

    def __init__(self, most: int, timeout: float, forget: Callable[[str, Place], None]) -> None:
        self._most, self._timeout, self._forget = most, timeout, forget
        self._key = secrets.token_bytes(32)
        self._open: OrderedDict[str, _Stream] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def open(self, places: Sequence[Place]) -> str:
        """Open a stream in the process that has the fewest, and return its id."""
        self.sweep(places)
        while len(self._open) >= self._most:
            self._end(next(iter(self._open)))
        held = Counter(stream.place for stream in self._open.values())
        random = secrets.token_hex(_PART // 2)
        name = random + self._tag(random)
        self._open[name] = _Stream(min(places, key=lambda place: held[place]), time.monotonic())
        return name

    def find(self, name: str, places: Sequence[Place]) -> Place:
        """Return where a stream is, and count it as used.

        Raises:
            NoSuchStream: There never was one.
            StreamEnded: It has ended.
        """
        if not hmac.compare_digest(self._tag(name[:_PART]).encode(), name[_PART:].encode()):
            raise NoSuchStream
        stream = self._open.get(name)
        if stream is None or stream.place not in places or time.monotonic() - stream.used > self._timeout:
            raise StreamEnded
        stream.used = time.monotonic()
        self._open.move_to_end(name)
        return stream.place

    def close(self, name: str, places: Sequence[Place]) -> None:
        """End a stream; raises like `find`."""
        self.find(name, places)
        self._end(name)

    def sweep(self, places: Sequence[Place]) -> None:
        """End streams that were not used for too long, and those of processes that have ended."""
        oldest = time.monotonic() - self._timeout
        for name in [n for n, s in self._open.items() if s.used < oldest or s.place not in places]:
            self._end(name)

    def _end(self, name: str) -> None:
        self._forget(name, self._open.pop(name).place)

    def _tag(self, random: str) -> str:
        return hmac.digest(self._key, random.encode(), "sha256").hex()[:_PART]
