"""`domainadaptor demo`: the main job on an embedded default."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from domainadaptor.cli.terminal import BatchSize, Device, Json, Seed, find_device, out, print_json, progress_bar
from domainadaptor.errors import BadFile

if TYPE_CHECKING:  # it takes seconds to import
    from domainadaptor.lab.demo.run import Report


def demo(
    output: Annotated[Path, typer.Option(help="A folder for the picture and the numbers.")] = Path("demo-results"),
    device: Device = "auto",
    batch_size: BatchSize = 64,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Train on three styles of handwritten digits, adapt to the fourth with every method; under a minute."""
    from domainadaptor.lab.demo.picture import draw
    from domainadaptor.lab.demo.run import amount_of_work, run_demo

    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadFile(f"cannot make the folder {str(output)!r}: {error.strerror}; choose another --output") from error
    with progress_bar(total=amount_of_work()) as bar:
        report = run_demo(find_device(device), batch_size, seed, bar.step)
    draw(report, output / "demo.png")
    (output / "demo.json").write_text(json.dumps(report.as_json(), indent=2) + "\n", encoding="utf-8")
    if as_json:
        print_json(report.as_json())
    else:
        out.print(_table(report))
        out.print(f"Picture: {output / 'demo.png'}   numbers: {output / 'demo.json'}", highlight=False, soft_wrap=True)


def _table(report: "Report") -> Table:
    table = Table(title="Accuracy (%) on a style that the network never saw in training", box=box.SIMPLE_HEAD)
    table.add_column("method", no_wrap=True)
    for column in (*report.at_home, "mean", "change", "ms/batch"):
        table.add_column(column, justify="right", no_wrap=True)
    base = report.mean("source")
    for method in report.methods():
        scores = report.of(method)
        batches = sum(-(-score.images // report.batch_size) for score in scores)
        milliseconds = 1000 * sum(score.seconds for score in scores) / batches
        cells = [f"{score.accuracy:.1f}" for score in scores]
        table.add_row(
            method, *cells, f"{report.mean(method):.1f}", _change(report.mean(method) - base), f"{milliseconds:.0f}"
        )
    table.caption = "At home, on unseen digits in the three styles it was trained on: " + ", ".join(
        f"{accuracy:.1f} (without {style})" for style, accuracy in report.at_home.items()
    )
    return table


def _change(points: float) -> str:
    color = "green" if points > 0 else "red" if points < 0 else "dim"
    return f"[{color}]{points:+.1f}[/{color}]"
