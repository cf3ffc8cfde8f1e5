"""`domainadaptor page`: try adaptation on your own images in a browser."""

from typing import Annotated

import typer

from domainadaptor.cli import terminal
from domainadaptor.cli.help import RUN, option

EXAMPLES = r"""
domainadaptor page
domainadaptor page checkpoint.safetensors --port 8765
"""

_NETWORK = "A checkpoint, or a network with published weights here. Default: a demo network, trained on first use."


def page(
    network: Annotated[str | None, typer.Argument(metavar="NETWORK", help=_NETWORK)] = None,
    root: terminal.Root = None,
    device: terminal.Device = "auto",
    port: Annotated[int | None, option("N", "Default: a free one.", RUN, min=1, max=65535)] = None,
    no_browser: Annotated[bool, option(None, "Only print the address.", RUN, "--no-browser")] = False,
) -> None:
    """Try adaptation on your own images, in a browser.

    Choose a network, images, a corruption and a method, and see each answer before and after. The page is for this
    machine alone, and nothing is sent anywhere. Ctrl+C ends it.
    """
    from domainadaptor.extras import require_extra

    require_extra("page", "domainadaptor page")
    from domainadaptor.page.networks import NetworkFinder
    from domainadaptor.page.server import run_page
    from domainadaptor.page.workshop import Workshop

    networks = NetworkFinder(network, root)
    if network is not None:
        networks.find(network)  # a mistake is reported here, not in the browser
    workshop = Workshop(networks, terminal.find_device(device))
    run_page(workshop, port or 0, lambda address: terminal.print_text(f"{address}\nCtrl+C ends it."), not no_browser)
