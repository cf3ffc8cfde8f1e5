"""`domainadaptor stress`: accuracy of a method during hostile streams, with and without the guard."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from domainadaptor.cli.help import ADAPTATION, DATA, RUN
from domainadaptor.cli.options import DataOptions, MethodOptions, parse_data_options, parse_method_options
from domainadaptor.cli.terminal import (
    BatchSize,
    Dataset,
    Device,
    Json,
    Method,
    Network,
    Root,
    Seed,
    Size,
    Weights,
    check_weights,
    err,
    find_device,
    out,
    print_json,
    print_text,
    progress_bar,
    show_notes,
)

if TYPE_CHECKING:  # it takes seconds to import
    from domainadaptor.lab.stress.stress_run import Course, StressReport


def stress(
    network: Network,
    dataset: Dataset,
    domain: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=DATA,
            help="One that the network was trained on; streams draw from it, and the probe. Default: the first.",
        ),
    ] = None,
    weights: Weights = None,
    root: Root = None,
    data_option: DataOptions = None,
    method: Method = "tent",
    option: MethodOptions = None,
    guard: Annotated[
        bool | None,
        typer.Option(rich_help_panel=ADAPTATION, help="Only with or only without the guard. Default: both."),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Hostile streams: one-class, sorted, noise, constant, alternating, tiny. Ordinary streams, in which "
            "the guard should not react: shuffled, domains. Repeatable. Default: all.",
        ),
    ] = None,
    batches: Annotated[int, typer.Option(min=1, metavar="N", help="Batches per stream.")] = 50,
    every: Annotated[int, typer.Option(min=1, metavar="N", help="Measure the probe after every N batches.")] = 10,
    probe: Annotated[int, typer.Option(min=1, metavar="N", help="Clean labeled images in the probe.")] = 200,
    size: Size = None,
    batch_size: BatchSize = 64,
    device: Device = "auto",
    seed: Seed = 0,
    output: Annotated[
        Path, typer.Option(metavar="DIR", rich_help_panel=RUN, help="Folder for stress.json and stress.png.")
    ] = Path("stress-results"),
    as_json: Json = False,
) -> None:
    """Measure a method's accuracy under hostile streams of batches."""
    from domainadaptor.lab.data.registry import open_dataset
    from domainadaptor.lab.files import make_folder, replacing
    from domainadaptor.lab.method_inputs import options_from
    from domainadaptor.lab.networks.loading import load_network
    from domainadaptor.lab.stress.chart import draw
    from domainadaptor.lab.stress.streams import KINDS, LabeledImages, sample
    from domainadaptor.lab.stress.stress_run import StressTest
    from domainadaptor.options import check_choice

    check_weights(network, weights)
    for name in kind or ():
        check_choice("kind", name, KINDS)
    chosen = parse_method_options(method, option)
    place = find_device(device)
    data = open_dataset(dataset, root, **parse_data_options(dataset, data_option))
    opened = load_network(network, weights, root=root).with_size(size)
    main = domain or next(iter(data.domains))
    images, probed, notes = sample(data, main, opened.classes, opened.preprocessing, probe=probe, seed=seed)
    own = options_from(
        method, heads=opened.heads, preprocessing=opened.preprocessing, source_images=images.of_main().images, seed=seed
    )
    probed = LabeledImages(*(tensor.to(place) for tensor in probed))
    test = StressTest(
        opened.network.to(place), method, {**own, **chosen}, images, probed,
        kinds=tuple(kind or KINDS), guards=(True, False) if guard is None else (guard,),
        batches=batches, every=min(every, batches), batch_size=batch_size, seed=seed,
    )  # fmt: skip
    with progress_bar(batches * len(test.kinds) * len(test.guards)) as bar:
        report = test.run(bar.step, _show_course)
    notes = [*opened.notes, *notes]
    record = {"network": opened.name, "dataset": data.name, "domain": main, **report.as_json(), "notes": notes}
    make_folder(output)
    with replacing(output / "stress.json") as path:
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    with replacing(output / "stress.png") as path:
        draw(report, path)
    if as_json:
        print_json(record)
        return
    _show(report)
    show_notes(notes)
    print_text(f"Record: {output / 'stress.json'}   chart: {output / 'stress.png'}")


def _show_course(course: "Course") -> None:
    """Print a line per stream where there is no progress bar."""
    if not err.is_terminal:
        guard = "with" if course.guard else "without"
        print_text(
            f"{course.kind}, {guard} the guard: lowest {course.lowest:.1f} %, last {course.last:.1f} % "
            f"({course.seconds:.0f} s)",
            err,
        )


def _show(report: "StressReport") -> None:
    table = Table("stream", title=f"{report.method}: accuracy on {report.probe} clean images, in percent")
    for column in ("with guard: lowest", "last", "resets", "without: lowest", "last"):
        table.add_column(column, justify="right")
    for kind in report.kinds():
        guarded, free = report.of(kind, True), report.of(kind, False)
        cells = [f"{guarded.lowest:.1f}", f"{guarded.last:.1f}", str(len(guarded.trips))] if guarded else [""] * 3
        table.add_row(kind, *cells, *([f"{free.lowest:.1f}", f"{free.last:.1f}"] if free else []))
    out.print(table)
    print_text(f"Source model: {report.source:.1f} %. {report.method} before any batch: {report.start:.1f} %.")
    for guard, words in ((True, "With"), (False, "Without")):
        if (points := report.loss(guard)) is not None:
            below = f"at worst {points:.1f} points below" if points > 0 else "never worse than"
            print_text(f"{words} the guard, hostile streams: {below} the source model.")
