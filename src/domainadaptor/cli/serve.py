"""`domainadaptor serve`: predictions over HTTP, adapted request by request."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from domainadaptor.catalog import DEFAULT_METHOD
from domainadaptor.cli import options, terminal
from domainadaptor.cli.help import ADAPTATION, CLUSTER, RUN, option
from domainadaptor.errors import BadOption

EXAMPLES = "domainadaptor serve checkpoint.safetensors --port 8000"

_LIMIT = "A limit, such as max_images=32; docs/service.md has the list. Repeatable."
_METHOD = f"A method: see `domainadaptor methods`. Default: {DEFAULT_METHOD}."
_STREAM = "The method of streams. Default: --method if it can learn online, else tent."
_PORTS = (
    "limits, token and streams are those of the service without Ray. They do not protect Ray's own ports: on this "
    "machine it listens on the loopback address; whoever reaches those of a cluster can run programs on it"
)
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
    engine: options.Engine = "process",
    replicas: Annotated[int | None, option("N", "Workers on the cluster, with a network each.", CLUSTER, min=1)] = None,
    address: options.Address = None,
    gpus: options.Gpus = None,
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

    if engine == "ray" and workers is not None:
        raise BadOption("--workers is for --engine process; pass --replicas with --engine ray")
    cluster = options.find_workers(engine, address, replicas, threads if engine == "ray" else None, gpus)
    settings = read_settings(
        network=network,
        weights=weights,
        classes=_text(classes),
        size=size,
        root=_text(root),
        method=method,
        options=options.split_pairs(method_option) or None,
        stream_method=stream_method,
        device="cuda" if gpus else device,
        host=host,
        port=port,
        workers=workers,
        threads=threads,
        no_token=no_token or None,
        **options.split_pairs(limit, "--limit", "max_images=32"),
    )
    if cluster is not None:
        cluster = replace(cluster, count=settings.workers if replicas is None else replicas, threads=settings.threads)
        terminal.show_notes([_PORTS])
    run_server(settings, cluster)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
