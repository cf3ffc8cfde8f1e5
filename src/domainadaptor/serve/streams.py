"""Streams: which worker process holds the adaptor of each, and when it ends."""

import base64
import hashlib
import hmac
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from domainadaptor.serve.pool import Place

_RANDOM, _TAG = 18, 12  # bytes of an id


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
        random = secrets.token_bytes(_RANDOM)
        name = base64.urlsafe_b64encode(random + self._tag(random)).decode()
        self._open[name] = _Stream(min(places, key=lambda place: held[place]), time.monotonic())
        return name

    def find(self, name: str, places: Sequence[Place]) -> Place:
        """Return where a stream is, and count it as used.

        Raises:
            NoSuchStream: There never was one.
            StreamEnded: It has ended.
        """
        if not self._is_ours(name):
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

    def _tag(self, random: bytes) -> bytes:
        return hmac.digest(self._key, random, hashlib.sha256)[:_TAG]

    def _is_ours(self, name: str) -> bool:
        try:
            both = base64.b64decode(name.encode(), altchars=b"-_", validate=True)
        except ValueError:
            return False
        return len(both) == _RANDOM + _TAG and hmac.compare_digest(self._tag(both[:_RANDOM]), both[_RANDOM:])
