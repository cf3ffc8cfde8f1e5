"""What every request passes: an id, the token, the origin, the size; and what every answer is logged and counted by."""

import asyncio
import hmac
import json
import logging
import re
import secrets
import time
from collections.abc import MutableMapping
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from domainadaptor.serve.metrics import Metrics
from domainadaptor.serve.settings import ServeSettings

_REQUEST_ID = re.compile(r"[\w.-]{1,64}", re.ASCII)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_WITHOUT_TOKEN = ("/v2/health/live", "/v2/health/ready")
_LINGER = 5.0  # seconds in which the rest of a refused request is read, so that its client sees the answer

_log = logging.getLogger("domainadaptor.serve.requests")


class Gate:
    """ASGI middleware around the application."""

    def __init__(self, app: ASGIApp, settings: ServeSettings, metrics: Metrics) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send)
        try:
            if (refusal := self._refusal(exchange)) is not None:
                await exchange.refuse(*refusal)
            else:
                await self._app(scope, exchange.receive, exchange.send)
        except Exception:  # the application has answered with 500
            _log.exception("request failed", extra={"fields": {"id": exchange.id}})
        finally:
            self._record(exchange)

    def _refusal(self, exchange: "_Exchange") -> tuple[int, str] | None:
        """Return why a request is refused before its body is read."""
        headers = exchange.headers
        host = headers.get("host", "")
        if self._settings.is_loopback and _name(host) not in (*_LOOPBACK, self._settings.host):
            return 403, "Wrong Host header: the service is for this machine only."
        if headers.get("origin", f"http://{host}") not in (f"http://{host}", f"https://{host}"):
            return 403, "Requests from other sites are refused."
        if self._settings.token is not None and exchange.scope["path"] not in _WITHOUT_TOKEN:
            expected = f"Bearer {self._settings.token.get_secret_value()}"
            if not hmac.compare_digest(headers.get("authorization", "").encode(), expected.encode()):
                return 401, "Expected 'Authorization: Bearer <token>'."
        if headers.get("content-encoding", "identity").lower() != "identity":
            return 415, "Compressed requests are not accepted."
        if int(headers.get("content-length", "0")) > self._settings.max_bytes:
            return 413, f"At most {self._settings.max_bytes} bytes per request."
        return None

    def _record(self, exchange: "_Exchange") -> None:
        route = getattr(exchange.scope.get("route"), "path", "other")
        seconds, status = time.perf_counter() - exchange.start, exchange.status or 499  # 499: the client has left
        self._metrics.requests.labels(route, str(status)).inc()
        self._metrics.seconds.labels(route).observe(seconds)
        fields = {"id": exchange.id, "method": exchange.scope["method"], "route": route, "status": status}
        facts = exchange.scope.get("facts", {})
        _log.info("request", extra={"fields": {**fields, "seconds": round(seconds, 4), **facts}})


def _name(host: str) -> str:
    """Return the name in a Host header, without the port."""
    return host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0].lower()


class _Exchange:
    """A request and its answer, in the form of ASGI's two functions."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope, self._receive, self._send = scope, receive, send
        self.headers = Headers(scope=scope)
        given = self.headers.get("x-request-id", "")
        self.id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        scope["request_id"] = self.id
        self.start = time.perf_counter()
        self.status = 0
        self._received = not {"content-length", "transfer-encoding"} & set(self.headers)
        self._asked = False

    async def receive(self) -> Message:
        """Receive a piece of the request."""
        self._asked = True
        message = await self._receive()
        self._received = not message.get("more_body", False)
        return message

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Send a piece of the answer; the last one after the rest of the request has been read."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = [(b"x-request-id", self.id.encode()), (b"cache-control", b"no-store")]
            message = {
                **message,
                "headers": [*message.get("headers", []), *own, (b"x-content-type-options", b"nosniff")],
            }
        elif not message.get("more_body", False) and not self._received:
            await self._send({**message, "more_body": True})
            await self._read_rest()
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await self._send(message)

    async def refuse(self, status: int, text: str) -> None:
        """Answer with an error."""
        body = json.dumps({"error": text}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        if status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    async def _read_rest(self) -> None:
        """Read the rest of the request for a while: closing while the client sends would lose the answer."""
        if "expect" in self.headers and not self._asked:
            return  # the client waits for a word before it sends anything
        until = time.monotonic() + _LINGER
        while not self._received and (left := until - time.monotonic()) > 0:
            try:
                await asyncio.wait_for(self.receive(), left)
            except asyncio.TimeoutError:
                return
