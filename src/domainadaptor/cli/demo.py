"""`domainadaptor demo`: what each ingredient of DomainAdaptor adds, on handwritten digits."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich import box
from rich.table import Table

from domainadaptor.cli import terminal
from domainadaptor.cli.help import option

if TYPE_CHECKING:  # it takes seconds to import
    from domainadaptor.lab.demo.run import DemoReport

EXAMPLES = r"""
domainadaptor demo
domainadaptor demo --batch-size 64 --output pictures
"""

_EXPLANATION = """\
gain: points over the row it builds on: batch statistics over the source model,
mixed statistics over batch statistics, each step over mixed statistics, auto
over the source model.

adabn normalizes with the statistics of the batch instead of those of the
training data. adamixbn mixes both, by how far they are apart: better for small
batches, worse where a style is very far from the training data. domainadaptor
folds that into scale and shift and takes one gradient step on a generalized
entropy, without labels, and forgets it after each batch. A step trusts the
network's own predictions, so it can lose points too.

auto has nothing to choose. It uses the statistics of the batch as far as they
have shifted, 40 % at most, and averages over three views of each image. It is
careful: where a style is very far from the training data, adabn gains more.

Batches of {batch} images, learning rate {lr}. Both were chosen on these styles, so
that each ingredient shows: an illustration, not a benchmark. In the three
styles of the training, accuracy is {low:.0f} to {high:.0f} %."""


def demo(
    output: Annotated[Path, option("DIR", "Folder for the picture and the numbers.")] = Path("demo-results"),
    batch_size: terminal.BatchSize = 16,
    seed: terminal.Seed = 0,
    device: terminal.Device = "auto",
    as_json: terminal.Json = False,
) -> None:
    """Adapt to a new style of handwritten digits, in a minute.

    Trains a small network on three styles of digits, adapts it to the fourth, and shows what each ingredient adds:
    batch statistics, mixed statistics, and the gradient step. Each style is left out in turn.
    """
    from domainadaptor.lab.demo.network import one_thread
    from domainadaptor.lab.demo.picture import draw
    from domainadaptor.lab.demo.run import amount_of_work, run_demo
    from domainadaptor.lab.files import make_folder

    make_folder(output)
    with one_thread(), terminal.progress_bar(total=amount_of_work()) as bar:
        report = run_demo(terminal.find_device(device), batch_size, seed, bar.step)
    draw(report, output / "demo.png")
    (output / "demo.json").write_text(json.dumps(report.as_json(), indent=2) + "\n", encoding="utf-8")
    if as_json:
        terminal.print_json(report.as_json())
    else:
        _show(report, output)


def _show(report: "DemoReport", output: Path) -> None:
    from domainadaptor.lab.demo.run import INGREDIENTS, LEARNING_RATE

    table = Table(
        title="Accuracy (%) on a style left out of training", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False
    )
    table.add_column("method", no_wrap=True)
    table.add_column("adds", no_wrap=True)
    for column in (*report.in_domain, "mean", "gain"):
        table.add_column(column, justify="right", no_wrap=True)
    for part in INGREDIENTS:
        accuracies = [f"{report.accuracy(part.method, style):.1f}" for style in report.in_domain]
        gain = f"{report.accuracy(part.method) - report.accuracy(part.builds_on):+.1f}" if part.builds_on else ""
        table.add_row(part.method, part.adds, *accuracies, f"{report.accuracy(part.method):.1f}", gain)
    terminal.out.print(table, highlight=False)
    known = report.in_domain.values()
    text = _EXPLANATION.format(batch=report.batch_size, lr=LEARNING_RATE, low=min(known), high=max(known))
    terminal.print_text(text)
    terminal.print_text(f"Picture: {output / 'demo.png'}   numbers: {output / 'demo.json'}")
