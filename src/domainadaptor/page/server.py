"""Run the page on this machine and open it in a browser."""

import secrets
import socket
import webbrowser
from collections.abc import Callable

import uvicorn

from domainadaptor.errors import BadOption
from domainadaptor.page.app import make_app
from domainadaptor.page.workshop import Workshop

_HOST = "127.0.0.1"


def run_page(workshop: Workshop, port: int, show: Callable[[str], None], browser: bool) -> None:
    """Serve the page until Ctrl+C.

    Args:
        workshop: What does the work.
        port: The port; 0 takes a free one.
        show: Called with the address once it can be opened.
        browser: Whether to open it.
    """
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((_HOST, port))
    except OSError as error:
        raise BadOption(f"Cannot use --port {port}: {error.strerror}. Leave it out to use a free one") from None
    listener.listen()  # from now on, a browser waits for the answer
    secret = secrets.token_urlsafe(16)
    address = f"http://{_HOST}:{listener.getsockname()[1]}/{secret}/"
    show(address)
    if browser:
        webbrowser.open(address)
    config = uvicorn.Config(
        make_app(workshop, secret),
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    uvicorn.Server(config).run(sockets=[listener])
