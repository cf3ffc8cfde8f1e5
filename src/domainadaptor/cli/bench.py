"""`domainadaptor bench`: what adaptation costs, in plain inferences."""

import json
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from domainadaptor.cli.options import MethodOptions, parse_options
from domainadaptor.cli.terminal import Device, Json, Seed, find_device, out, print_json, progress_bar
from domainadaptor.errors import BadFile, BadOption
from domainadaptor.files import replacing

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
    from domainadaptor.bench.growth import METHODS, around
    from domainadaptor.bench.picture import draw
    from domainadaptor.bench.run import compared, run_bench
    from domainadaptor.bench.timing import Setting
    from domainadaptor.networks.zoo import blueprint

    before = _read(compare) if compare else None
    place = str(find_device(device))
    settings = [
        Setting(blueprint(name).name, images, side, rounds, place, seed)
        for name, images, side in product(network or ["resnet18"], batch_size or [64], size or [224])
    ]
    if growth and len(settings) > 1:
        raise BadOption("--growth goes away from one network, batch size and side: give each once at most")
    points = list(around(settings[0])) if growth else [("", setting) for setting in settings]
    options = parse_options(option or [])
    methods = {name: _fitting(name, options) for name in method or (METHODS if growth else _METHODS)}
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
    _show(compared(report, before or {"rows": []}), changed=before is not None)
    for point in report["skipped"]:
        where = f"{point['network']}, {point['batch_size']} x {point['size']}²"
        out.print(f"Left out: {where}: {point['reason']}", highlight=False, soft_wrap=True)
    machine = report["machine"]
    out.print(
        f"{machine['processor']}, {machine['threads']} threads, torch {machine['torch']}. "
        f"Report: {output / 'bench.json'}   chart: {output / 'bench.png'}",
        highlight=False,
        soft_wrap=True,
    )


def _fitting(method: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options that a method has; Tent predicts after its step, as the others do."""
    import domainadaptor

    known = domainadaptor.options_of(method)
    fitting = {name: value for name, value in options.items() if name in known}
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
    table = Table("network", "images", "method", title="Time of a batch, in plain inferences of the same network")
    for column in ("ratio", "quartiles", *(["before"] if changed else []), "images/s", "memory, MB", "plain, MB",
                   "wrap, ms", "reset, ms"):  # fmt: skip
        table.add_column(column, justify="right")
    for row, earlier in rows:
        spread = f"{row['ratio_low']:.2f} to {row['ratio_high']:.2f}"
        memory = [f"{row[key]:.0f}" if row.get(key) is not None else "" for key in ("memory_mb", "plain_memory_mb")]
        table.add_row(
            row["network"],
            f"{row['batch_size']} x {row['size']}²",
            row["method"],
            f"{row['ratio']:.2f}",
            spread,
            *([f"{earlier:.2f}" if earlier is not None else ""] if changed else []),
            f"{row['images_per_second']:.0f}",
            *memory,
            f"{row['wrap_milliseconds']:.0f}",
            f"{row['reset_milliseconds']:.1f}",
        )
    out.print(table)
    phases = list(dict.fromkeys(name for row, _ in rows for name in row["phases"]))
    if phases:
        parts = Table("network", "method", title="Milliseconds of one batch by phase, under a profiler")
        for name in phases:
            parts.add_column(name, justify="right")
        for row, _ in rows:
            cells = [f"{row['phases'][name]:.0f}" if name in row["phases"] else "" for name in phases]
            parts.add_row(row["network"], row["method"], *cells)
        out.print(parts)
