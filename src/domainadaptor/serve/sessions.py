"""Streams and calibrated models: which worker process holds each, and when it ends."""

import hmac
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from domainadaptor.serve.pool import Place

_PART = 24  # characters of both parts of an id: a random one, and its tag


class NoSuchSession(Exception):
    """There never was one with this id; the argument says what it would be."""


class SessionEnded(Exception):
    """It was closed, not used for too long, made room for another, or was lost with its worker."""


@dataclass
class _Session:
    place: Place
    used: float


class Sessions:
    """Open sessions by id, least recently used first.

    An id is random and signed with a key of this object, so that an ended session can be told from an invented one
    without remembering it.

    Args:
        what: What one is called: a stream, or a model.
        most: How many may be open; one more ends the least recently used.
        timeout: Seconds after which an unused one ends.
        forget: Called with the id and the place of each that ends.
    """

    def __init__(self, what: str, most: int, timeout: float, forget: Callable[[str, Place], None]) -> None:
        self.what, self._most, self._timeout, self._forget = what, most, timeout, forget
        self._key = secrets.token_bytes(32)
        self._open: OrderedDict[str, _Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def new_id(self) -> str:
        """Return an id for a session that is kept later."""
        random = secrets.token_hex(_PART // 2)
        return random + self._tag(random)

    def keep(self, id: str, place: Place) -> None:
        """Open a session that a process holds; if there are too many, the least recently used one ends."""
        while len(self._open) >= self._most:
            self._end(next(iter(self._open)))
        self._open[id] = _Session(place, time.monotonic())

    def open(self, places: Sequence[Place]) -> str:
        """Open a session in the process that has the fewest, and return its id."""
        self.sweep(places)
        held = Counter(session.place for session in self._open.values())
        self.keep(id := self.new_id(), min(places, key=lambda place: held[place]))
        return id

    def find(self, id: str, places: Sequence[Place]) -> Place:
        """Return where a session is, and count it as used.

        Raises:
            NoSuchSession: There never was one.
            SessionEnded: It has ended.
        """
        if not hmac.compare_digest(self._tag(id[:_PART]).encode(), id[_PART:].encode()):
            raise NoSuchSession(self.what)
        session = self._open.get(id)
        if session is None or session.place not in places or time.monotonic() - session.used > self._timeout:
            raise SessionEnded(self.what)
        session.used = time.monotonic()
        self._open.move_to_end(id)
        return session.place

    def close(self, id: str, places: Sequence[Place]) -> None:
        """End a session; raises like `find`."""
        self.find(id, places)
        self._end(id)

    def sweep(self, places: Sequence[Place]) -> None:
        """End sessions that were not used for too long, and those of processes that have ended."""
        oldest = time.monotonic() - self._timeout
        for id in [id for id, s in self._open.items() if s.used < oldest or s.place not in places]:
            self._end(id)

    def _end(self, id: str) -> None:
        self._forget(id, self._open.pop(id).place)

    def _tag(self, random: str) -> str:
        return hmac.digest(self._key, random.encode(), "sha256").hex()[:_PART]
