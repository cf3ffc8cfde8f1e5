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
    try:
        listener = socket.create_server((_HOST, port))  # from now on, a browser waits for the answer
    except OSError as error:
        raise BadOption(f"Cannot use --port {port}: {error.strerror}. Leave it out to use a free one") from None
    secret = secrets.token_urlsafe(16)
    address = f"http://{_HOST}:{listener.getsockname()[1]}/{secret}/"
    app = make_app(workshop, secret)
    config = uvicorn.Config(
        app, ws="none", lifespan="off", log_level="warning", access_log=False, timeout_graceful_shutdown=1
    )
    with listener:
        show(address)
        if browser:
            webbrowser.open(address)
        uvicorn.Server(config).run(sockets=[listener])
