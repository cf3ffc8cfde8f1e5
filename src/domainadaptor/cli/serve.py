"""`domainadaptor serve`: predictions over HTTP, adapted request by request."""

from pathlib import Path
from typing import Annotated

from domainadaptor.catalog import DEFAULT_METHOD
from domainadaptor.cli import options, terminal
from domainadaptor.cli.help import ADAPTATION, RUN, option

EXAMPLES = "domainadaptor serve checkpoint.safetensors --port 8000"

_LIMIT = "A limit, such as max_images=32; docs/service.md has the list. Repeatable."
_METHOD = f"A method: see `domainadaptor methods`. Default: {DEFAULT_METHOD}."
_STREAM = "The method of streams. Default: --method if it can learn online, else tent."
_NO_TOKEN = "Let everybody who can connect use the service."


def serve(
    network: terminal.Network,
    weights: terminal.Weights = None,
    classes: terminal.Classes = None,
    size: terminal.Size = None,
    root: terminal.Root = None,
    method: Annotated[str | None, option("NAME", _METHOD, ADAPTATION, callback=terminal.check_methods)] = None,
    method_option: options.MethodOptions = None,
    stream_method: Annotated[str | None, option("NAME", _STREAM, ADAPTATION)] = None,
    device: Annotated[str | None, option("NAME", "cpu, cuda or cuda:1. Default: cpu.", RUN)] = None,
    host: Annotated[
        str | None, option("ADDRESS", "Where to listen. Default: 127.0.0.1, this machine only.", RUN)
    ] = None,
    port: Annotated[int | None, option("N", "Default: 8000.", RUN)] = None,
    workers: Annotated[int | None, option("N", "Processes with a network each. Default: one per core.", RUN)] = None,
    threads: Annotated[int | None, option("N", "Threads per worker. Default: 1.", RUN)] = None,
    no_token: Annotated[bool, option(None, _NO_TOKEN, RUN, "--no-token")] = False,
    limit: Annotated[list[str] | None, option("NAME=VALUE", _LIMIT, RUN, "--limit")] = None,
) -> None:
    """Serve predictions over HTTP, before and after adaptation.

    One request is one batch: requests are never merged, and nothing is kept between them unless a client opens a
    stream. Settings are also read from DOMAINADAPTOR_SERVE_<NAME>, the token only from there.
    """
    from domainadaptor.extras import require_extra

    require_extra("serve", "domainadaptor serve")
    from domainadaptor.serve.server import run_server
    from domainadaptor.serve.settings import read_settings

    settings = read_settings(
        network=network,
        weights=weights,
        classes=_text(classes),
        size=size,
        root=_text(root),
        method=method,
        options=options.split_pairs(method_option) or None,
        stream_method=stream_method,
        device=device,
        host=host,
        port=port,
        workers=workers,
        threads=threads,
        no_token=no_token or None,
        **options.split_pairs(limit, "--limit", "max_images=32"),
    )
    run_server(settings)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
