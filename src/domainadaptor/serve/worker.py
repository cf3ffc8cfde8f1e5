"""A worker process: answers one request at a time, each from bytes to bytes.

Everything that reads what a client sent (forms, JSON, image decoders) runs here, so that the worst input ends a worker
and not the service. Orders and replies are JSON, each followed by a body.
"""

import gc
import json
import logging
import signal
import sys
import time
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch

from domainadaptor.errors import AdaptationError, BadBatch, UnsupportedNetwork
from domainadaptor.lab.allocator import keep_freed_memory
from domainadaptor.serve.dialects import Refused, read_images, read_tensors, write_predictions, write_tensors
from domainadaptor.serve.logs import log_as_json
from domainadaptor.serve.model import ServedModel
from domainadaptor.serve.settings import ServeSettings

Order = dict[str, Any]
Reply = tuple[dict[str, Any], bytes]

_log = logging.getLogger("domainadaptor.serve.worker")


def main(descriptor: int) -> None:
    """Load the network, then answer orders until the other end is closed."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the front process decides when its workers end
    log_as_json()
    warnings.filterwarnings("ignore", module=r"PIL\.")
    keep_freed_memory()
    connection = Connection(descriptor)
    settings = ServeSettings.model_validate_json(connection.recv_bytes())
    torch.set_num_threads(settings.threads)
    torch.set_num_interop_threads(1)
    try:
        model = ServedModel(settings)
    except AdaptationError as error:
        connection.send_bytes(json.dumps({"error": str(error)}).encode())
        return
    gc.freeze()  # a collection would look at everything that was imported, and hold a request up
    connection.send_bytes(json.dumps(model.describe()).encode())
    desk = Desk(model, settings)
    while True:
        try:
            order, body = json.loads(connection.recv_bytes()), connection.recv_bytes()
            head, content = desk.answer(order, body)
            connection.send_bytes(json.dumps(head).encode())
            connection.send_bytes(content)
        except (EOFError, ConnectionError):  # the front process has ended
            return


class Desk:
    """Answers orders; whatever goes wrong with one is an answer too."""

    def __init__(self, model: ServedModel, settings: ServeSettings) -> None:
        self._model, self._settings = model, settings
        self._kinds: dict[str, Callable[[Order, bytes], Reply]] = {
            "predict": self._predict,
            "infer": self._infer,
            "calibrate": self._calibrate,
            "forget": self._forget,
            "check": self._check,
        }

    def answer(self, order: Order, body: bytes) -> Reply:
        """Return the status, what the front process should know, and the body for the client."""
        try:
            return self._kinds[order["kind"]](order, body)
        except Refused as refused:
            return _error(refused.status, refused.text)
        except (BadBatch, UnsupportedNetwork) as error:
            return _error(400, str(error))
        except Exception as error:
            _log.exception("request failed", extra={"fields": {"id": order.get("id")}})
            if isinstance(error, MemoryError) or "allocate memory" in str(error):
                return _error(503, "Not enough memory for this request.")
            return _error(500, "Internal error.")

    def _predict(self, order: Order, body: bytes) -> Reply:
        start = time.perf_counter()
        images = read_images(order["content_type"], body, self._settings, self._model.transform)
        decoded = time.perf_counter() - start
        answer = self._model.predict(images, order["stream"], order["model"])
        head = _facts(answer, decoded) | {"headers": {"content-type": "application/json"}}
        return head, write_predictions(answer, self._model.classes, order["alpha"])

    def _infer(self, order: Order, body: bytes) -> Reply:
        start = time.perf_counter()
        request, images = read_tensors(body, order["header"], self._settings, self._model.size)
        decoded = time.perf_counter() - start
        answer = self._model.predict(images, order["stream"], order["model"])
        content, header = write_tensors(answer, request, order["model"] or self._model.name)
        headers = {"content-type": "application/json"}
        if header is not None:
            headers = {"content-type": "application/octet-stream", "inference-header-content-length": str(header)}
        return _facts(answer, decoded) | {"headers": headers}, content

    def _calibrate(self, order: Order, body: bytes) -> Reply:
        start = time.perf_counter()
        images = read_images(order["content_type"], body, self._settings, self._model.transform)
        middle = time.perf_counter()
        made = self._model.calibrate(images, order["share"], order["name"])
        seconds = {"decode": middle - start, "calibrate": time.perf_counter() - middle}
        head = {"status": 201, "seconds": seconds, "headers": {"content-type": "application/json"}}
        return head, made.model_dump_json().encode()

    def _forget(self, order: Order, body: bytes) -> Reply:
        self._model.forget(order["name"])
        return {"status": 204, "headers": {}}, b""

    def _check(self, order: Order, body: bytes) -> Reply:
        self._model.check()
        return {"status": 200, "headers": {}}, b""


def _facts(answer: Any, decoded: float) -> dict[str, Any]:
    return {
        "status": 200,
        "images": len(answer.source),
        "seconds": {"decode": decoded, **answer.seconds},
        "fell_back": answer.result.fell_back,
        "collapsed": answer.result.collapsed,
    }


def _error(status: int, text: str) -> Reply:
    headers = {"content-type": "application/json", **({"retry-after": "1"} if status == 503 else {})}
    return {"status": status, "headers": headers}, json.dumps({"error": text}).encode()


if __name__ == "__main__":
    main(int(sys.argv[1]))
