"""One client's connection: uvicorn's HTTP/1.1 protocol with deadlines, which uvicorn lacks.

A client that is slow to send its request or to read the answer is cut off; the time that the service itself needs does
not count. When there are too many connections, the one that has kept the service waiting the longest makes room.
"""

import asyncio
import json
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from domainadaptor.serve.settings import ServeSettings

_HEADER_BYTES = 16 * 1024
_FEW_PIECES = 256
_SMALL_PIECE = 64  # mean bytes of the pieces of a body below which a client only costs time


class _Parser(h11.Connection):
    """Refuses bodies in thousands of tiny pieces: each costs as much time as a large one."""

    _pieces = _bytes = 0

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Data):
            self._pieces, self._bytes = self._pieces + 1, self._bytes + len(event.data)
            if self._pieces > _FEW_PIECES and self._bytes < _SMALL_PIECE * self._pieces:
                raise h11.RemoteProtocolError("the body comes in too small pieces")
        return event

    def start_next_cycle(self) -> None:
        super().start_next_cycle()
        self._pieces = self._bytes = 0


class DeadlineProtocol(H11Protocol):
    """HTTP/1.1 with a deadline for the client."""

    def __init__(self, *args: Any, settings: ServeSettings, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = _Parser(h11.SERVER, _HEADER_BYTES)
        self._settings = settings
        self._deadline: asyncio.TimerHandle | None = None
        self._idle = False  # between two requests

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock, and make room if there are too many connections."""
        super().connection_made(transport)
        self._start_clock()
        if len(self.connections) > self._settings.max_connections:
            others = [c for c in self.connections if isinstance(c, DeadlineProtocol) and c._deadline is not None]
            longest = min(others, key=lambda c: c._deadline.when() if c._deadline else 0.0)
            longest._cut(503, "Too many connections.")

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._stop_clock()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Restart the clock with the first byte of another request; stop it when a request is complete."""
        if self._idle:
            self._idle = False
            self._start_clock()
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """Start the clock for reading the answer, and for the next request."""
        self._idle = True
        self._start_clock()
        super().on_response_complete()
        self._look()  # the next request may have come already

    def pause_writing(self) -> None:
        """Start the clock: the client does not read."""
        super().pause_writing()
        self._start_clock()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, or end the connection if an answer has begun."""
        self._cut(400, msg)

    def _look(self) -> None:
        """Stop the clock if it is the client who waits."""
        if self.cycle is None or self.cycle.response_complete or self.flow.write_paused:
            return
        self._idle = False
        if self.conn.their_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED):
            self._stop_clock()

    def _start_clock(self) -> None:
        self._stop_clock()
        self._deadline = self.loop.call_later(self._settings.client_timeout, self._cut, 408, "The request is too slow.")

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _cut(self, status: int, text: str) -> None:
        """End the connection, with an answer if none has begun and the client expects one."""
        self._stop_clock()
        if self._idle or self.transport.is_closing() or (self.cycle is not None and self.cycle.response_started):
            self.transport.abort()
            return
        body = json.dumps({"error": text}).encode()
        head = f"HTTP/1.1 {status} \r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(head.encode() + b"retry-after: 1\r\nconnection: close\r\n\r\n" + body)
        self.transport.close()
