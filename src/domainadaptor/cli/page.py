"""`domainadaptor page`: try adaptation on your own images in a browser."""

from typing import Annotated

import typer

from domainadaptor.cli import terminal
from domainadaptor.cli.help import RUN, option
from domainadaptor.errors import BadOption

_NETWORK = "A checkpoint, or a network's name with --weights. Default: a demo network, trained on first use."


def page(
    network: Annotated[str | None, typer.Argument(metavar="[NETWORK]", help=_NETWORK)] = None,
    weights: terminal.Weights = None,
    classes: terminal.Classes = None,
    size: terminal.Size = None,
    root: terminal.Root = None,
    device: terminal.Device = "auto",
    port: Annotated[int, option("N", "Port of the page. Default: a free one.", RUN, min=0, max=65535)] = 0,
    browser: Annotated[bool, option(None, "Do not open a browser.", RUN, "--browser/--no-browser")] = True,
) -> None:
    """Try adaptation on your own images, in a browser.

    Opens a page of this machine, for this machine only: choose a network, images, a corruption and a method, and see
    both answers for each image. Nothing is sent anywhere. Ctrl+C ends it.
    """
    from domainadaptor.extras import require_extra

    require_extra("page", "domainadaptor page")
    from domainadaptor.lab.networks.loading import LoadedNetwork, load_network
    from domainadaptor.lab.prediction import read_classes
    from domainadaptor.page.networks import Networks
    from domainadaptor.page.server import run_page
    from domainadaptor.page.workshop import Workshop

    given: LoadedNetwork | None = None
    if network is not None:
        terminal.check_weights(network, weights)
        names = read_classes(classes) if classes is not None else []
        given = load_network(network, weights, names, root).with_size(size)
    elif weights or classes or size:
        raise BadOption("--weights, --classes and --size are for a network: pass its name or a checkpoint")
    workshop = Workshop(Networks(given, network or "", root), terminal.find_device(device))
    run_page(workshop, port, lambda address: terminal.print_text(f"{address}\nCtrl+C ends it."), browser)
