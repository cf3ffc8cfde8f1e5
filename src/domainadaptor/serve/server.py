"""Run the service: bind the port, start the workers, answer until a signal comes."""

import gc
import logging
import signal
import socket
import sys
from functools import partial
from typing import TYPE_CHECKING

import uvicorn

from domainadaptor.errors import BadOption
from domainadaptor.serve.app import Service, make_app
from domainadaptor.serve.connection import DeadlineProtocol
from domainadaptor.serve.logs import log_as_json
from domainadaptor.serve.pool import WorkerPool
from domainadaptor.serve.settings import ServeSettings

if TYPE_CHECKING:
    from domainadaptor.lab.cluster.start import Workers

_log = logging.getLogger("domainadaptor.serve")


def run_server(settings: ServeSettings, cluster: "Workers | None" = None) -> None:
    """Serve until SIGINT or SIGTERM, from processes or a cluster; requests that were accepted are answered first."""
    if cluster is None:
        _run(settings)
        return
    from domainadaptor.lab.cluster.start import start_serve
    from domainadaptor.serve.replicas import Replica

    with cluster.session() as workers:
        start_serve()
        own = settings.model_copy(update={"workers": workers.count})
        _run(own, WorkerPool(own, lambda given: Replica(given, workers)))


def _run(settings: ServeSettings, pool: WorkerPool | None = None) -> None:
    log_as_json()
    listener = _bind(settings)
    pool = pool or WorkerPool(settings)
    try:
        about = pool.start()
    except BaseException:
        pool.close()
        raise
    host, port = listener.getsockname()[:2]
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    about_it = {name: about[name] for name in ("name", "method", "stream_method", "notes")}
    _log.info("serving", extra={"fields": {"url": url, **about_it}})
    config = uvicorn.Config(
        make_app(Service(settings, pool, about), settings),
        http=partial(DeadlineProtocol, settings=settings),  # type: ignore[arg-type]
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=10**6,  # DeadlineProtocol does it
        timeout_graceful_shutdown=int(settings.client_timeout + settings.time_limit * (settings.queue + 1)) + 1,
    )
    gc.freeze()  # a collection would look at everything that was imported, and hold all requests up
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))  # uvicorn raises it again when it has finished
    uvicorn.Server(config).run(sockets=[listener])


def _bind(settings: ServeSettings) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        raise BadOption(f"Cannot use --host {settings.host} --port {settings.port}: {error.strerror}") from None
    return listener
