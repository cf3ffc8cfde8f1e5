"""`domainadaptor bench`: what adaptation costs, in plain inferences."""

import json
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE
from rich.table import Column, Table

from domainadaptor.cli.options import MethodOptions, parse_method_options, split_pairs
from domainadaptor.cli.terminal import Device, Json, Seed, find_device, out, print_json, progress_bar
from domainadaptor.errors import BadFile, BadOption

_METHODS = ["adabn", "adamixbn", "tent", "domainadaptor-t", "domainadaptor-skd", "domainadaptor-aug"]


def bench(
    network: Annotated[list[str] | None, typer.Option(help="May be repeated; resnet18 otherwise.")] = None,
    method: Annotated[list[str] | None, typer.Option(help="May be repeated; the paper's otherwise.")] = None,
    option: MethodOptions = None,
    batch_size: Annotated[list[int] | None, typer.Option(min=1, help="May be repeated; 64 otherwise.")] = None,
    size: Annotated[list[int] | None, typer.Option(min=1, help="Side of the images; may be repeated; 224.")] = None,
    growth: Annotated[
        bool, typer.Option("--growth", help="How cost grows with batch size, side and network, one at a time.")
    ] = False,
    rounds: Annotated[int, typer.Option(min=1, help="How often everything is timed, in turn.")] = 7,
    memory: Annotated[bool, typer.Option(help="Also peak memory, in a process for each cell.")] = True,
    output: Annotated[Path, typer.Option(help="Folder for bench.json and bench.png.")] = Path("bench-results"),
    compare: Annotated[Path | None, typer.Option(help="A bench.json of before: shows what changed.")] = None,
    device: Device = "auto",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Time methods against plain inference of the same network, in interleaved rounds of one run."""
    from domainadaptor.lab.bench.benchmark import compared, run_bench, where
    from domainadaptor.lab.bench.chart import draw
    from domainadaptor.lab.bench.growth import METHODS, around
    from domainadaptor.lab.bench.timing import BenchConfig
    from domainadaptor.lab.files import replacing
    from domainadaptor.lab.networks.zoo import find_network

    before = _read(compare) if compare else None
    place = str(find_device(device))
    settings = [
        BenchConfig(find_network(name).name, images, side, rounds, place, seed)
        for name, images, side in product(network or ["resnet18"], batch_size or [64], size or [224])
    ]
    if growth and len(settings) > 1:
        raise BadOption("--growth goes away from one network, batch size and side: give each once at most")
    points = list(around(settings[0])) if growth else [("", setting) for setting in settings]
    texts = split_pairs(option)
    methods = {name: _fitting(name, texts) for name in method or (METHODS if growth else _METHODS)}
    output.mkdir(parents=True, exist_ok=True)

    def keep(report: dict[str, Any]) -> None:
        with replacing(output / "bench.json") as path:
            path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")

    with progress_bar(total=0) as bar:
        report = run_bench(points, methods, memory, bar.step, keep)
    draw(report, output / "bench.png")
    if as_json:
        print_json(report)
        return
    if growth:
        _show_growth(report["rows"])
    else:
        _show(compared(report, before or {"rows": []}), changed=before is not None)
    for point in report["skipped"]:
        out.print(f"Left out: {where(point)}: {point['reason']}", highlight=False, soft_wrap=True)
    machine = report["machine"]
    out.print(
        f"{machine['processor']}, {machine['threads']} threads, torch {machine['torch']}. "
        f"Report: {output / 'bench.json'}   chart: {output / 'bench.png'}",
        highlight=False,
        soft_wrap=True,
    )


def _fitting(method: str, texts: dict[str, str]) -> dict[str, Any]:
    """Return the options that a method takes; Tent predicts after its step, as the others do."""
    from domainadaptor.catalog import method_info

    known = method_info(method, allow_import=True).options
    fitting = parse_method_options(method, [f"{name}={text}" for name, text in texts.items() if name in known])
    if method == "tent":
        fitting.setdefault("predict", "after")
    return fitting


def _read(path: Path) -> dict[str, Any]:
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadFile(f"cannot read {str(path)!r}: {error}") from error
    if not isinstance(report, dict) or "rows" not in report:
        raise BadOption(f"--compare {str(path)!r} is no bench.json of this command")
    return report


def _show(rows: list[tuple[dict[str, Any], float | None]], changed: bool) -> None:
    """Two tables for each network, batch size and side: what a batch costs, and where its time goes."""
    from domainadaptor.lab.bench.benchmark import where

    settings: dict[str, list[tuple[dict[str, Any], float | None]]] = {}
    for row, earlier in rows:
        settings.setdefault(where(row), []).append((row, earlier))
    for place, own in settings.items():
        plain = own[0][0]
        said = f"{place}; plain inference: {plain['plain_milliseconds']:.0f} ms"
        if plain.get("plain_memory_mb") is not None:
            said += f", {plain['plain_memory_mb']:.0f} MB"
        table = Table(Column("method", no_wrap=True), title=said)
        headings = ("plain inferences", "quartiles", *(["before"] if changed else []), "images/s", "memory, MB")
        for column in headings:
            table.add_column(column, justify="right")
        for row, earlier in own:
            table.add_row(
                row["method"],
                f"{row['ratio']:.2f}",
                f"{row['ratio_low']:.2f} to {row['ratio_high']:.2f}",
                *([f"{earlier:.2f}" if earlier is not None else ""] if changed else []),
                f"{row['images_per_second']:.0f}",
                f"{row['memory_mb']:.0f}" if row.get("memory_mb") is not None else "",
            )
        out.print(table)
        _show_phases([row for row, _ in own])


def _show_phases(rows: list[dict[str, Any]]) -> None:
    phases = list(dict.fromkeys(name for row in rows for name in row["phases"]))
    title = "Milliseconds under a profiler (statistics are a part of the passes); of wrapping, once a network"
    parts = Table(Column("method", no_wrap=True), title=title, box=SIMPLE, padding=0)
    for name in (*phases, "forget", "wrap"):
        parts.add_column(name.partition(" (")[0], justify="right")
    for row in rows:
        cells = [f"{row['phases'][name]:.0f}" if name in row["phases"] else "" for name in phases]
        parts.add_row(row["method"], *cells, f"{row['reset_milliseconds']:.1f}", f"{row['wrap_milliseconds']:.0f}")
    out.print(parts)


def _show_growth(rows: list[dict[str, Any]]) -> None:
    """A table for each axis: plain inferences and megabytes of every method at every point."""
    from domainadaptor.lab.bench.benchmark import where

    methods = list(dict.fromkeys(row["method"] for row in rows))
    for axis in dict.fromkeys(row["axis"] for row in rows):
        points: dict[str, dict[str, dict[str, Any]]] = {}
        for row in (row for row in rows if row["axis"] == axis):
            points.setdefault(where(row), {})[row["method"]] = row
        table = Table(Column(axis, no_wrap=True), title="Plain inferences, and megabytes")
        for method in methods:
            table.add_column(method, justify="right")
        for place, own in points.items():
            table.add_row(place, *(_cost(own[method]) for method in methods))
        out.print(table)


def _cost(row: dict[str, Any]) -> str:
    memory = "" if row.get("memory_mb") is None else f", {row['memory_mb']:,.0f} MB"
    return f"{row['ratio']:.2f}{memory}"
