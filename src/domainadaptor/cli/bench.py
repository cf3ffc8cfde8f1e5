"""`domainadaptor bench`: the cost of adaptation, relative to the source model."""

import json
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from rich.table import Column, Table

from domainadaptor.catalog import DEFAULT_METHOD
from domainadaptor.cli import options, terminal
from domainadaptor.cli.help import NETWORK, RUN, option

EXAMPLES = "domainadaptor bench --network resnet18 --size 64 --method tent"

_METHODS = [DEFAULT_METHOD, "adabn", "adamixbn", "tent", "domainadaptor-t", "domainadaptor-skd", "domainadaptor-aug"]
Numbers = list[int] | None


def bench(
    network: Annotated[list[str] | None, option("NAME", "Repeatable. Default: resnet18.", NETWORK)] = None,
    method: terminal.Methods = None,
    method_option: options.MethodOptions = None,
    batch_size: Annotated[Numbers, option("N", "Images per batch; repeatable. Default: 64.", min=1)] = None,
    size: Annotated[Numbers, option("PIXELS", "Side of the images; repeatable. Default: 224.", NETWORK, min=1)] = None,
    rounds: Annotated[int, option("N", "Timings of each method, interleaved.", min=1)] = 7,
    memory: Annotated[bool, option(None, "Also measure peak memory, in a process per method.")] = True,
    onnx: Annotated[bool, option(None, "Also time ONNX files, relative to the network's own.")] = False,
    output: Annotated[Path, option("DIR", "Folder for bench.json.", RUN)] = Path("bench-results"),
    device: terminal.Device = "auto",
    seed: terminal.Seed = 0,
    as_json: terminal.Json = False,
) -> None:
    """Time methods relative to the source model."""
    from domainadaptor.lab.bench.benchmark import run_bench, title
    from domainadaptor.lab.bench.timing import BenchConfig
    from domainadaptor.lab.files import make_folder, replacing
    from domainadaptor.lab.networks.zoo import find_network

    place = str(terminal.find_device(device))
    configs = [
        BenchConfig(find_network(name).name, images, side, rounds, place, seed, engine)
        for name, images, side in product(network or ["resnet18"], batch_size or [64], size or [224])
        for engine in ("torch", "onnxruntime")[: 1 + onnx]
    ]
    texts = options.split_pairs(method_option)
    methods = {name: _options_for(name, texts) for name in method or _METHODS}
    make_folder(output)

    def save(report: dict[str, Any]) -> None:
        with replacing(output / "bench.json") as path:
            path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")

    with terminal.progress_bar(total=0, lines=True) as bar:
        report = run_bench(configs, methods, memory, bar.step, save)
    if as_json:
        terminal.print_json(report)
        return
    _show(report)
    for point in report["skipped"]:
        terminal.print_text(f"Skipped: {title(point)}: {point['reason']}")
    machine = report["machine"]
    terminal.print_text(f"{machine['processor']}, threads: {machine['threads']}, torch {machine['torch']}")
    terminal.print_text(f"Report: {output / 'bench.json'}")


def _options_for(method: str, texts: dict[str, str]) -> dict[str, Any]:
    """Return the options that a method takes; Tent predicts after its step, as the others do."""
    from domainadaptor.catalog import method_info

    known = method_info(method, allow_import=True).options
    own = options.parse_method_options(method, [f"{name}={text}" for name, text in texts.items() if name in known])
    return {"predict": "after", **own} if method == "tent" else own


def _show(report: dict[str, Any]) -> None:
    """Print two tables per configuration: the cost per batch, and where the time goes."""
    from domainadaptor.lab.bench.benchmark import by_config

    for place, rows in by_config(report).items():
        heading = f"{place}; source model: {rows[0]['source_milliseconds']:.0f} ms"
        if memory := rows[0].get("memory_mb") is not None:
            heading += f", {rows[0]['source_memory_mb']:.0f} MB"
        costs = Table(Column("method", no_wrap=True), title=heading)
        for column in ("x source", "quartiles", "images/s", *["memory, MB"] * memory):
            costs.add_column(column, justify="right")
        phases = list(dict.fromkeys(name for row in rows for name in row["phases"]))
        times = Table(Column("method", no_wrap=True), box=None, padding=(0, 1, 0, 0), pad_edge=False)
        times.title = "Milliseconds per phase under a profiler (passes include statistics)"
        for name in (*phases, "reset", "wrap"):
            times.add_column(name.partition(" (")[0].replace(" ", "\n"), justify="right")
        for row in rows:
            cells = [f"{row['ratio']:.2f}", f"{row['ratio_low']:.2f} to {row['ratio_high']:.2f}"]
            cells += [f"{row['images_per_second']:.0f}", *([f"{row['memory_mb']:.0f}"] if memory else [])]
            costs.add_row(row["method"], *cells)
            cells = [f"{row['phases'][name]:.0f}" if name in row["phases"] else "" for name in phases]
            times.add_row(row["method"], *cells, f"{row['reset_milliseconds']:.1f}", f"{row['wrap_milliseconds']:.0f}")
        terminal.out.print(costs)
        if phases:  # an ONNX file has none
            terminal.out.print(times)
