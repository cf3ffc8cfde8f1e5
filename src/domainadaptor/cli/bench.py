"""`domainadaptor bench`: the cost of adaptation, relative to plain inference."""

import json
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from domainadaptor.cli.help import NETWORK, RUN
from domainadaptor.cli.options import MethodOptions, parse_method_options, split_pairs
from domainadaptor.cli.terminal import (
    Device,
    Json,
    Methods,
    Seed,
    find_device,
    out,
    print_json,
    print_text,
    progress_bar,
)
from domainadaptor.errors import BadFile, BadOption

_METHODS = ["adabn", "adamixbn", "tent", "domainadaptor-t", "domainadaptor-skd", "domainadaptor-aug"]


def bench(
    network: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", rich_help_panel=NETWORK, help="Repeatable. Default: resnet18."),
    ] = None,
    method: Methods = None,
    option: MethodOptions = None,
    batch_size: Annotated[
        list[int] | None, typer.Option(min=1, metavar="N", help="Images per batch; repeatable. Default: 64.")
    ] = None,
    size: Annotated[
        list[int] | None,
        typer.Option(
            min=1, metavar="PIXELS", rich_help_panel=NETWORK, help="Side of the images; repeatable. Default: 224."
        ),
    ] = None,
    growth: Annotated[
        bool,
        typer.Option("--growth", help="Vary batch size, image size and network, one at a time, to show growing costs."),
    ] = False,
    rounds: Annotated[int, typer.Option(min=1, metavar="N", help="Timings of each method, interleaved.")] = 7,
    memory: Annotated[bool, typer.Option(help="Also measure peak memory, in a process per method.")] = True,
    output: Annotated[
        Path, typer.Option(metavar="DIR", rich_help_panel=RUN, help="Folder for bench.json and bench.png.")
    ] = Path("bench-results"),
    compare: Annotated[
        Path | None, typer.Option(metavar="FILE", rich_help_panel=RUN, help="An earlier bench.json to compare with.")
    ] = None,
    device: Device = "auto",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Time methods relative to plain inference of the same network."""
    from domainadaptor.lab.bench.benchmark import GROWTH_METHODS, compared, run_bench, title, vary_one
    from domainadaptor.lab.bench.chart import draw
    from domainadaptor.lab.bench.timing import BenchConfig
    from domainadaptor.lab.files import replacing
    from domainadaptor.lab.networks.zoo import find_network

    before = _read(compare) if compare else None
    place = str(find_device(device))
    configs = [
        BenchConfig(find_network(name).name, images, side, rounds, place, seed)
        for name, images, side in product(network or ["resnet18"], batch_size or [64], size or [224])
    ]
    if growth and len(configs) > 1:
        raise BadOption("--growth starts from one network, batch size and image size: pass each at most once")
    points = list(vary_one(configs[0])) if growth else [("", config) for config in configs]
    texts = split_pairs(option)
    methods = {name: _options_for(name, texts) for name in method or (GROWTH_METHODS if growth else _METHODS)}
    output.mkdir(parents=True, exist_ok=True)

    def save(report: dict[str, Any]) -> None:
        with replacing(output / "bench.json") as path:
            path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")

    with progress_bar(total=0, lines=True) as bar:
        report = run_bench(points, methods, memory, bar.step, save)
    draw(report, output / "bench.png")
    if as_json:
        print_json(report)
        return
    if growth:
        _show_growth(report["rows"])
    else:
        _show(compared(report, before or {"rows": []}), changed=before is not None)
    for point in report["skipped"]:
        print_text(f"Skipped: {title(point)}: {point['reason']}")
    machine = report["machine"]
    threads = f"{machine['threads']} thread{'' if machine['threads'] == 1 else 's'}"
    print_text(f"{machine['processor']}, {threads}, torch {machine['torch']}")
    print_text(f"Report: {output / 'bench.json'}   chart: {output / 'bench.png'}")


def _options_for(method: str, texts: dict[str, str]) -> dict[str, Any]:
    """Return the options that a method takes; Tent predicts after its step, as the others do."""
    from domainadaptor.catalog import method_info

    known = method_info(method, allow_import=True).options
    options = parse_method_options(method, [f"{name}={text}" for name, text in texts.items() if name in known])
    if method == "tent":
        options.setdefault("predict", "after")
    return options


def _read(path: Path) -> dict[str, Any]:
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadFile(f"Cannot read {str(path)!r}: {error}") from error
    if not isinstance(report, dict) or "rows" not in report:
        raise BadOption(f"--compare {str(path)!r}: expected a bench.json that this command wrote")
    return report


def _show(rows: list[tuple[dict[str, Any], float | None]], changed: bool) -> None:
    """Print two tables per configuration: the cost per batch, and where the time goes."""
    from domainadaptor.lab.bench.benchmark import title

    configs: dict[str, list[tuple[dict[str, Any], float | None]]] = {}
    for row, earlier in rows:
        configs.setdefault(title(row), []).append((row, earlier))
    for place, own in configs.items():
        first = own[0][0]
        plain = f"{place}; plain inference: {first['plain_milliseconds']:.0f} ms"
        if first.get("plain_memory_mb") is not None:
            plain += f", {first['plain_memory_mb']:.0f} MB"
        table = Table(Column("method", no_wrap=True), title=plain)
        memory = first.get("memory_mb") is not None
        before, megabytes = ["before"] * changed, ["memory, MB"] * memory
        for column in ("x plain", "quartiles", *before, "images/s", *megabytes):
            table.add_column(column, justify="right")
        for row, earlier in own:
            table.add_row(
                row["method"],
                f"{row['ratio']:.2f}",
                f"{row['ratio_low']:.2f} to {row['ratio_high']:.2f}",
                *([f"{earlier:.2f}" if earlier is not None else ""] if changed else []),
                f"{row['images_per_second']:.0f}",
                *([f"{row['memory_mb']:.0f}"] if memory else []),
            )
        out.print(table)
        _show_phases([row for row, _ in own])


def _show_phases(rows: list[dict[str, Any]]) -> None:
    phases = list(dict.fromkeys(name for row in rows for name in row["phases"]))
    title = "Milliseconds per phase under a profiler (passes include statistics)"
    table = Table(Column("method", no_wrap=True), title=title, box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for name in (*phases, "reset", "wrap"):
        table.add_column(name.partition(" (")[0].replace(" ", "\n"), justify="right")
    for row in rows:
        cells = [f"{row['phases'][name]:.0f}" if name in row["phases"] else "" for name in phases]
        table.add_row(row["method"], *cells, f"{row['reset_milliseconds']:.1f}", f"{row['wrap_milliseconds']:.0f}")
    out.print(table)


def _show_growth(rows: list[dict[str, Any]]) -> None:
    """Print a table per axis with relative time and memory of every method at every point."""
    from domainadaptor.lab.bench.benchmark import title

    methods = list(dict.fromkeys(row["method"] for row in rows))
    for axis in dict.fromkeys(row["axis"] for row in rows):
        points: dict[str, dict[str, dict[str, Any]]] = {}
        for row in (row for row in rows if row["axis"] == axis):
            points.setdefault(title(row), {})[row["method"]] = row
        table = Table(Column(axis, no_wrap=True), title="Time relative to plain inference, and memory")
        for method in methods:
            table.add_column(method, justify="right")
        for place, own in points.items():
            table.add_row(place, *(_cost(own[method]) for method in methods))
        out.print(table)


def _cost(row: dict[str, Any]) -> str:
    memory = "" if row.get("memory_mb") is None else f", {row['memory_mb']:,.0f} MB"
    return f"{row['ratio']:.2f}{memory}"
