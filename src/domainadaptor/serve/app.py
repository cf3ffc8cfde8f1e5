"""The routes of the service."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp

import domainadaptor
from domainadaptor.serve.gate import Gate
from domainadaptor.serve.metrics import Metrics
from domainadaptor.serve.pool import Busy, Job, OutOfTime, Place, Unavailable, WorkerLost, WorkerPool
from domainadaptor.serve.schemas import BatchPrediction, ImagesRequest, InferRequest, NewModel, NewStream, Problem
from domainadaptor.serve.sessions import NoSuchSession, SessionEnded, Sessions
from domainadaptor.serve.settings import ServeSettings

_SWEEP_EVERY = 1.0  # seconds
_ENDED = (
    "This {} has ended: it was closed, was not used for too long, made room for another, or was lost with its "
    "worker process. Start a new one."
)
_ANSWERS: dict[type[Exception], tuple[int, str]] = {
    Busy: (429, "Too many requests wait."),
    Unavailable: (503, "No worker is ready."),
    OutOfTime: (504, "The request took longer than the time limit."),
    WorkerLost: (500, "The request ended its worker process twice."),
    NoSuchSession: (404, "There is no such {}."),
    SessionEnded: (410, _ENDED),
    RequestValidationError: (400, "A parameter in the URL is invalid."),
    ClientDisconnect: (499, "The client has left."),
    Exception: (500, "Internal error."),
}
_Session = tuple[Sessions, str] | None  # a stream or a calibrated model, by its id
_FORM = {"type": "object", "additionalProperties": {"type": "string", "format": "binary"}}


class Service:
    """The handlers of all routes, and what they share."""

    def __init__(self, settings: ServeSettings, pool: WorkerPool, about: dict[str, Any]) -> None:
        self._settings, self._pool, self._about = settings, pool, about
        self._streams = Sessions("stream", settings.max_streams, settings.stream_timeout, self._forget)
        self._models = Sessions("model", settings.max_models, settings.model_timeout, self._forget)
        self._buffered = 0  # bytes of all bodies that are being received or wait
        self.metrics = Metrics()
        self.metrics.watch("queue", "Requests that wait for a worker.", lambda: pool.waiting)
        self.metrics.watch("workers", "Workers that are ready.", lambda: len(pool.places))
        self.metrics.watch("worker_restarts", "Workers that were started again.", lambda: pool.restarts)
        self.metrics.watch("streams", "Open streams.", lambda: len(self._streams))
        self.metrics.watch("models", "Calibrated models.", lambda: len(self._models))

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """End unused streams and models while the service runs, and the workers afterwards."""

        async def sweep() -> None:
            while True:
                await asyncio.sleep(_SWEEP_EVERY)
                for sessions in (self._streams, self._models):
                    sessions.sweep(self._pool.places)

        sweeping = asyncio.create_task(sweep())
        yield
        sweeping.cancel()
        await asyncio.to_thread(self._pool.close)

    async def predict(
        self, request: Request, stream: str | None = None, model: str | None = None, alpha: bool = False
    ) -> Response:
        """Predict the images of one request as one batch; within it, images influence each other."""
        order = {"kind": "predict", "content_type": request.headers.get("content-type", ""), "alpha": alpha}
        _, answer = await self._batch(request, order, self._session(stream, model))
        return answer

    async def infer(self, request: Request, name: str, stream: str | None = None) -> Response:
        """Predict a tensor of normalized images as one batch."""
        session = self._session(stream, name)
        header = request.headers.get("inference-header-content-length")
        if header is not None and not (header.isascii() and header.isdigit() and len(header) < 12):
            raise HTTPException(400, "Inference-Header-Content-Length is not a number.")
        _, answer = await self._batch(request, {"kind": "infer", "header": header and int(header)}, session)
        return answer

    async def calibrate(self, request: Request, share: Annotated[float | None, Query(ge=0, le=1)] = None) -> Response:
        """Calibrate the network on the images of one request; return the name of a new model that predicts with it."""
        name, taken = self._models.new_id(), None
        order = {"kind": "calibrate", "content_type": request.headers.get("content-type", ""), "share": share}
        try:
            job, answer = await self._batch(request, {**order, "name": name}, None)
            if answer.status_code == 201:
                taken = job.taken
        finally:
            if taken is not None:
                self._models.keep(name, taken)
            else:  # the client may have left while a worker was at it
                for place in self._pool.places:
                    self._forget(name, place)
        return answer

    async def delete_model(self, name: str) -> Response:
        """Delete a calibrated model."""
        self._models.close(name, self._pool.places)
        return Response(status_code=204)

    async def open_stream(self) -> NewStream:
        """Start a stream: its batches are adapted online, each after what the earlier ones taught."""
        if not (places := self._pool.places):
            raise Unavailable
        return NewStream(id=self._streams.open(places), method=self._about["stream_method"])

    async def reset_stream(self, id: str) -> Response:
        """Let a stream start over from the source model."""
        self._forget(id, self._streams.find(id, self._pool.places))
        return Response(status_code=204)

    async def close_stream(self, id: str) -> Response:
        """End a stream."""
        self._streams.close(id, self._pool.places)
        return Response(status_code=204)

    async def live(self) -> Response:
        """Tell that the front process answers."""
        return JSONResponse({})

    async def ready(self) -> Response:
        """Tell whether a worker is ready whose network predicts what it did at the start."""
        return JSONResponse({}, 200 if self._pool.places else 503)

    async def server_metadata(self) -> dict[str, Any]:
        """Describe the service."""
        return {"name": "domainadaptor", "version": domainadaptor.__version__, "extensions": ["binary_tensor_data"]}

    async def model_metadata(self, name: str) -> dict[str, Any]:
        """Describe the tensors of a model."""
        session = self._session(None, name)
        self._place(session)
        size, classes = self._about["size"], len(self._about["classes"])
        images = {"name": "images", "datatype": "FP32", "shape": [-1, 3, size, size]}
        outputs = [{"name": n, "datatype": "FP32", "shape": [-1, classes]} for n in ("logits", "source_logits")]
        parameters = {"method": "calibrate" if session else self._about["method"], "classes": self._about["classes"]}
        return {
            "name": name,
            "versions": [],
            "platform": "pytorch",
            "inputs": [images],
            "outputs": outputs,
            "parameters": parameters,
        }

    async def model_ready(self, name: str) -> Response:
        """Tell whether a model is ready."""
        self._place(self._session(None, name))
        return await self.ready()

    async def show_metrics(self) -> Response:
        """Return the metrics for Prometheus."""
        return Response(self.metrics.page(), media_type="text/plain; version=0.0.4")

    async def _batch(self, request: Request, order: dict[str, Any], session: _Session) -> tuple[Job, Response]:
        """Receive a request, let a worker answer it, and count what happened."""
        self._place(session)
        self._pool.check_room()
        start, taken = time.perf_counter(), 0
        pieces = []
        try:
            async for piece in request.stream():
                pieces.append(piece)
                taken += len(piece)
                self._buffered += len(piece)
                if taken > self._settings.max_bytes:
                    raise HTTPException(413, f"At most {self._settings.max_bytes} bytes per request.")
                if self._buffered > self._settings.max_buffer:
                    raise HTTPException(503, "Too many bytes wait for workers.", {"Retry-After": "1"})
            received = time.perf_counter() - start
            place = self._place(session)  # again: it may have ended while its batch was sent
            named = {"stream": None, "model": None, **({session[0].what: session[1]} if session else {})}
            job = Job({**order, **named, "id": request.scope["request_id"]}, b"".join(pieces), place)
            pieces.clear()
            head, content = await self._answer(request, job, session)
        finally:
            pieces.clear()  # an error holds this frame until its answer is sent
            self._buffered -= taken
        self._count(request, head, {"receive": received, "queue": job.waited, **head.get("seconds", {})})
        return job, Response(content, head["status"], head["headers"])

    async def _answer(self, request: Request, job: Job, session: _Session) -> tuple[dict[str, Any], bytes]:
        """Wait for a worker; drop the job if the client leaves before one has begun it."""
        self._pool.submit(job)
        answer = asyncio.wrap_future(job.answer)
        leaving: asyncio.Future[Any] = asyncio.ensure_future(request.receive())
        try:
            await asyncio.wait({answer, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise ClientDisconnect
            return answer.result()
        except WorkerLost:
            if session is None:
                raise
            raise SessionEnded(session[0].what) from None
        finally:
            leaving.cancel()
            self._pool.discard(job)

    def _count(self, request: Request, head: dict[str, Any], seconds: dict[str, float]) -> None:
        for phase, value in seconds.items():
            self.metrics.phases.labels(phase).observe(value)
        self.metrics.images.inc(head.get("images", 0))
        self.metrics.fell_back.inc(head.get("fell_back", False))
        self.metrics.guard_resets.inc(head.get("collapsed", False))
        rounded = {phase: round(value, 4) for phase, value in seconds.items()}
        request.scope["facts"] = {"images": head.get("images", 0), "phases": rounded}

    def _session(self, stream: str | None, model: str | None) -> _Session:
        """Return the stream or the calibrated model that a request is for, if it is for one."""
        if model is None or model == self._about["name"]:
            return None if stream is None else (self._streams, stream)
        if stream is not None:
            raise HTTPException(400, "A calibrated model has no streams: leave out the model or the stream.")
        return self._models, model

    def _place(self, session: _Session) -> Place | None:
        return None if session is None else session[0].find(session[1], self._pool.places)

    def _forget(self, name: str, place: Place) -> None:
        if place in self._pool.places:
            self._pool.submit(Job({"kind": "forget", "name": name}, place=place), internal=True)


def make_app(service: Service, settings: ServeSettings) -> ASGIApp:
    """Return the ASGI application."""
    app = FastAPI(
        title="DomainAdaptor",
        version=domainadaptor.__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=service.lifespan,
    )
    for error in (*_ANSWERS, AnyHTTPException):
        app.add_exception_handler(error, _problem)
    refused: dict[int | str, dict[str, Any]] = {"default": {"model": Problem}}
    images = {
        "multipart/form-data": {"schema": _FORM},
        "application/json": {"schema": ImagesRequest.model_json_schema()},
    }
    tensors = {"application/json": {"schema": InferRequest.model_json_schema()}}
    routes: list[tuple[str, str, Callable[..., Any], dict[str, Any]]] = [
        ("POST", "/predict", service.predict, {"response_model": BatchPrediction, "openapi_extra": _body(images)}),
        (
            "POST",
            "/calibrate",
            service.calibrate,
            {"response_model": NewModel, "status_code": 201, "openapi_extra": _body(images)},
        ),
        ("DELETE", "/models/{name}", service.delete_model, {"status_code": 204}),
        ("POST", "/streams", service.open_stream, {"status_code": 201}),
        ("POST", "/streams/{id}/reset", service.reset_stream, {"status_code": 204}),
        ("DELETE", "/streams/{id}", service.close_stream, {"status_code": 204}),
        ("GET", "/metrics", service.show_metrics, {}),
        ("GET", "/v2", service.server_metadata, {}),
        ("GET", "/v2/health/live", service.live, {}),
        ("GET", "/v2/health/ready", service.ready, {}),
        ("GET", "/v2/models/{name}", service.model_metadata, {}),
        ("GET", "/v2/models/{name}/ready", service.model_ready, {}),
        ("POST", "/v2/models/{name}/infer", service.infer, {"openapi_extra": _body(tensors)}),
    ]
    for method, path, handler, more in routes:
        app.add_api_route(path, handler, methods=[method], responses=refused, **more)
    return Gate(app, settings, service.metrics)


def _body(content: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": content}}


async def _problem(request: Request, error: Exception) -> Response:
    """Answer an error with its text, which never has a path or a trace."""
    if isinstance(error, AnyHTTPException):
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)
    status, text = _ANSWERS.get(type(error), _ANSWERS[Exception])
    if isinstance(error, NoSuchSession | SessionEnded):
        text = text.format(*error.args)
    wait = getattr(error, "retry_after", 1)
    return JSONResponse({"error": text}, status, {"Retry-After": str(wait)} if status in (429, 503) else None)
