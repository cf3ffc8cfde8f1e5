"""`domainadaptor stress`: what hostile streams leave of a network's knowledge, with and without the guard."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from domainadaptor.cli.options import DataOptions, MethodOptions, parse_data_options, parse_method_options
from domainadaptor.cli.terminal import (
    BatchSize,
    Device,
    Json,
    Network,
    Root,
    Seed,
    find_device,
    out,
    print_json,
    progress_bar,
    show_notes,
)
from domainadaptor.errors import BadOption

if TYPE_CHECKING:  # it takes seconds to import
    from domainadaptor.lab.stress.stress_run import Course, StressReport


def stress(
    network: Network,
    dataset: Annotated[str, typer.Argument(help="pacs, cifar10-c, digits, folders …: see `data list`.")],
    domain: Annotated[
        str | None, typer.Option(help="The domain to probe and to draw from, which the network knows; the first one.")
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            help="For a network by name: a .safetensors, .pt or .pth file; or pretrained: published weights that are "
            "on this machine."
        ),
    ] = None,
    root: Root = None,
    data_option: DataOptions = None,
    method: Annotated[str, typer.Option(help="One that remembers batches: see domainadaptor methods.")] = "tent",
    option: MethodOptions = None,
    guard: Annotated[
        bool | None, typer.Option("--guard/--no-guard", help="Only with the guard, or only without; both otherwise.")
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            help="one-class, sorted, noise, constant, alternating, tiny; shuffled and domains are ordinary streams, "
            "under which the guard should stay quiet; may be repeated; all otherwise."
        ),
    ] = None,
    batches: Annotated[int, typer.Option(min=1, help="Of each kind.")] = 1000,
    every: Annotated[int, typer.Option(min=1, help="After how many batches the probe is measured again.")] = 50,
    probe: Annotated[int, typer.Option(min=1, help="How many clean labeled images are probed.")] = 500,
    size: Annotated[int | None, typer.Option(min=1, help="Input side; the network's own otherwise.")] = None,
    batch_size: BatchSize = 64,
    device: Device = "auto",
    seed: Seed = 0,
    output: Annotated[Path, typer.Option(help="Folder for stress.json and stress.png.")] = Path("stress-results"),
    as_json: Json = False,
) -> None:
    """Stream hostile batches through a method, and probe on the way what is left of what the network knew."""
    from domainadaptor.lab.data.registry import open_dataset
    from domainadaptor.lab.files import replacing
    from domainadaptor.lab.method_inputs import options_from
    from domainadaptor.lab.networks.loading import is_weights_file, load_network
    from domainadaptor.lab.stress.chart import draw
    from domainadaptor.lab.stress.gather import gather
    from domainadaptor.lab.stress.streams import KINDS
    from domainadaptor.lab.stress.stress_run import StressConfig, amount_of_work, run_stress

    if weights in (None, "none") and not is_weights_file(network):
        raise BadOption(f"with which weights? say --weights FILE or pretrained, or give a checkpoint for {network!r}")
    chosen = parse_method_options(method, option)
    place = find_device(device)
    data = open_dataset(dataset, root, **parse_data_options(dataset, data_option))
    opened = load_network(network, weights, root=root).at(size)
    pool, probed, notes = gather(
        data, domain or next(iter(data.domains)), opened.classes, opened.preprocessing, probe=probe, seed=seed
    )
    own = options_from(
        method, heads=opened.heads, preprocessing=opened.preprocessing, source_images=pool.at_home().images, seed=seed
    )
    setting = StressConfig(batches, min(every, batches), batch_size, seed)
    kinds, guards = tuple(kind or KINDS), (True, False) if guard is None else (guard,)
    with progress_bar(amount_of_work(setting, kinds, guards)) as bar:
        report = run_stress(
            opened.network.to(place),
            method,
            {**own, **chosen},
            pool,
            probed,
            setting=setting,
            kinds=kinds,
            guards=guards,
            progress=bar.step,
        )
    record = {"network": opened.name, "dataset": data.name, "domain": pool.home, **report.as_json(),
              "notes": [*opened.notes, *notes]}  # fmt: skip
    output.mkdir(parents=True, exist_ok=True)
    with replacing(output / "stress.json") as path:
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    with replacing(output / "stress.png") as path:
        draw(report, path)
    if as_json:
        print_json(record)
        return
    _show(report)
    show_notes([*opened.notes, *notes])
    out.print(f"Record: {output / 'stress.json'}   picture: {output / 'stress.png'}", highlight=False, soft_wrap=True)


def _show(report: "StressReport") -> None:
    table = Table("stream", title=f"{report.method}: accuracy on {report.probe} clean images, in percent")
    for column in ("with guard: lowest", "last", "went back", "without: lowest", "last"):
        table.add_column(column, justify="right")
    for kind in report.kinds():
        with_guard, without = report.of(kind, True), report.of(kind, False)
        times = "" if with_guard is None else str(len(with_guard.trips))
        table.add_row(kind, *_numbers(with_guard), times, *_numbers(without))
    out.print(table)
    out.print(
        f"The source network has {report.source:.1f} %, {report.method} before any batch {report.start:.1f} %.",
        highlight=False,
    )
    for guard, words in ((True, "With"), (False, "Without")):
        points = report.loss(guard)
        if points is not None:
            below = f"at worst {points:.1f} points" if points > 0 else "never"
            out.print(f"{words} the guard, hostile streams bring it {below} below the source.", highlight=False)


def _numbers(course: "Course | None") -> tuple[str, str]:
    return ("", "") if course is None else (f"{course.lowest:.1f}", f"{course.last:.1f}")
