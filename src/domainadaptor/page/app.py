"""The routes of the page. Only those who know the secret in the address can use them, from this machine."""

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from domainadaptor.errors import AdaptationError, BadFile
from domainadaptor.page.order import PicturesOrder, RunOrder, offers
from domainadaptor.page.pictures import MAX_BYTES
from domainadaptor.page.workshop import Report, Workshop

# The browser itself refuses whatever is not from this address.
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}
_MAX_ORDER = 1024**2  # bytes

_log = logging.getLogger(__name__)


class _Canceled(Exception):
    """The browser no longer wants the answer."""


class _Files(StaticFiles):
    def file_response(self, *args: Any, **more: Any) -> Response:
        response = super().file_response(*args, **more)
        response.headers.update(_HEADERS)
        return response


class PageHandlers:
    """Takes requests and has one thread work them off."""

    def __init__(self, workshop: Workshop) -> None:
        self._workshop, self._thread = workshop, ThreadPoolExecutor(1, "page")

    async def about(self, request: Request) -> Response:
        """Say what can be chosen."""
        networks = self._workshop.networks
        return JSONResponse({**offers(), "given": networks.given, "files": networks.nearby()})

    async def add(self, request: Request) -> Response:
        """Keep an image and answer with its id."""
        data = await _body(request, MAX_BYTES)
        return JSONResponse({"id": await self._in_thread(self._workshop.store.add, data)})

    async def preview(self, request: Request) -> Response:
        """Answer with a few of the images as the network gets them."""
        order = PicturesOrder.model_validate_json(await _body(request, _MAX_ORDER))
        return self._streamed(lambda report: self._workshop.preview(order, report))

    async def run(self, request: Request) -> Response:
        """Answer with progress and results while they come; a browser that hangs up cancels."""
        order = RunOrder.model_validate_json(await _body(request, _MAX_ORDER))
        return self._streamed(lambda report: self._workshop.run(order, report))

    async def checkpoint(self, request: Request) -> Response:
        """Answer with a checkpoint of the network, calibrated on the images of a run."""
        content = await self._in_thread(self._workshop.checkpoint, request.query_params.get("run", ""))
        return Response(content, media_type="application/octet-stream")

    async def _in_thread(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    def _streamed(self, work: Callable[[Report], None]) -> Response:
        return StreamingResponse(self._lines(work), media_type="application/x-ndjson")

    async def _lines(self, work: Callable[[Report], None]) -> AsyncIterator[str]:
        """Yield what some work reports, a line of JSON each."""
        loop, canceled = asyncio.get_running_loop(), threading.Event()
        lines: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

        def report(line: dict[str, Any]) -> None:
            if canceled.is_set():
                raise _Canceled
            loop.call_soon_threadsafe(lines.put_nowait, line)

        def job() -> None:
            try:
                work(report)
                report({})
            except AdaptationError as error:
                report({"error": _sentence(str(error))})
            except _Canceled:
                raise
            except Exception:
                _log.exception("the work failed")
                report({"error": "This failed because of a bug in the program. The terminal shows the details."})

        running = self._thread.submit(job)
        try:
            while line := await lines.get():
                yield json.dumps(line) + "\n"
                if "error" in line:
                    return
        finally:
            canceled.set()
            running.cancel()


async def _body(request: Request, limit: int) -> bytes:
    """Return the body of a request; BadFile before more than the limit is in memory."""
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > limit:
            raise BadFile(f"larger than {limit // 1024**2} MB, which is the most that is accepted")
    return bytes(data)


async def _problem(request: Request, error: Exception) -> Response:
    if isinstance(error, ValidationError):
        first = error.errors(include_input=False)[0]
        return JSONResponse({"error": _sentence(f"{'.'.join(map(str, first['loc']))}: {first['msg']}")}, 400)
    return JSONResponse({"error": _sentence(str(error))}, 400)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def make_app(workshop: Workshop, secret: str) -> Starlette:
    """Return the application; every address in it begins with the secret."""
    handlers = PageHandlers(workshop)
    routes = [
        Route("/about", handlers.about),
        Route("/images", handlers.add, methods=["PUT"]),
        Route("/preview", handlers.preview, methods=["POST"]),
        Route("/run", handlers.run, methods=["POST"]),
        Route("/checkpoint", handlers.checkpoint, methods=["POST"]),
        Mount("/", _Files(directory=Path(__file__).with_name("static"), html=True)),
    ]
    return Starlette(
        routes=[Mount(f"/{secret}", routes=routes)],
        # A name that another site lets point to this machine arrives with that site's Host header.
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])],
        exception_handlers={AdaptationError: _problem, ValidationError: _problem},
    )
