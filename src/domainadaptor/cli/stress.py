"""`domainadaptor stress`: accuracy of a method during hostile streams, with and without the guard."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.table import Table

from domainadaptor.cli import options, terminal
from domainadaptor.cli.help import ADAPTATION, DATA, RUN, option

if TYPE_CHECKING:  # it takes seconds to import
    from domainadaptor.lab.stress.stress_run import Course, StressReport

_DOMAIN = "One that the network was trained on; streams draw from it, and the probe. Default: the first."
_KIND = (
    "Hostile streams: one-class, sorted, noise, constant, alternating, tiny. Ordinary streams, in which the guard "
    "should not react: shuffled, domains. Repeatable. Default: all."
)
_GUARD = "Only with or only without the guard. Default: both."


def stress(
    network: terminal.Network,
    dataset: terminal.Dataset,
    domain: Annotated[str | None, option("NAME", _DOMAIN, DATA)] = None,
    weights: terminal.Weights = None,
    root: terminal.Root = None,
    data_option: options.DataOptions = None,
    method: terminal.Method = "tent",
    method_option: options.MethodOptions = None,
    guard: Annotated[bool | None, option(None, _GUARD, ADAPTATION)] = None,
    kind: Annotated[list[str] | None, option("NAME", _KIND)] = None,
    batches: Annotated[int, option("N", "Batches per stream.", min=1)] = 50,
    every: Annotated[int, option("N", "Measure the probe after every N batches.", min=1)] = 10,
    probe: Annotated[int, option("N", "Clean labeled images in the probe.", min=1)] = 200,
    size: terminal.Size = None,
    batch_size: terminal.BatchSize = 64,
    device: terminal.Device = "auto",
    seed: terminal.Seed = 0,
    output: Annotated[Path, option("DIR", "Folder for stress.json and stress.png.", RUN)] = Path("stress-results"),
    as_json: terminal.Json = False,
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

    terminal.check_weights(network, weights)
    for name in kind or ():
        check_choice("kind", name, KINDS)
    chosen = options.parse_method_options(method, method_option)
    place = terminal.find_device(device)
    data = open_dataset(dataset, root, **options.parse_data_options(dataset, data_option))
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
    with terminal.progress_bar(batches * len(test.kinds) * len(test.guards)) as bar:
        report = test.run(bar.step, _show_course)
    notes = [*opened.notes, *notes]
    record = {"network": opened.name, "dataset": data.name, "domain": main, **report.as_json(), "notes": notes}
    make_folder(output)
    with replacing(output / "stress.json") as path:
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    with replacing(output / "stress.png") as path:
        draw(report, path)
    if as_json:
        terminal.print_json(record)
        return
    _show(report)
    terminal.show_notes(notes)
    terminal.print_text(f"Record: {output / 'stress.json'}   chart: {output / 'stress.png'}")


def _show_course(course: "Course") -> None:
    """Print a line per stream where there is no progress bar."""
    if not terminal.err.is_terminal:
        guard = "with" if course.guard else "without"
        terminal.print_text(
            f"{course.kind}, {guard} the guard: lowest {course.lowest:.1f} %, last {course.last:.1f} % "
            f"({course.seconds:.0f} s)",
            terminal.err,
        )


def _show(report: "StressReport") -> None:
    table = Table("stream", title=f"{report.method}: accuracy on {report.probe} clean images, in percent")
    for column in ("with guard: lowest", "last", "resets", "without: lowest", "last"):
        table.add_column(column, justify="right")
    for kind in report.kinds():
        guarded, free = report.of(kind, True), report.of(kind, False)
        cells = [f"{guarded.lowest:.1f}", f"{guarded.last:.1f}", str(len(guarded.trips))] if guarded else [""] * 3
        table.add_row(kind, *cells, *([f"{free.lowest:.1f}", f"{free.last:.1f}"] if free else []))
    terminal.out.print(table)
    terminal.print_text(f"Source model: {report.source:.1f} %. {report.method} before any batch: {report.start:.1f} %.")
    for guard, words in ((True, "With"), (False, "Without")):
        if (points := report.loss(guard)) is not None:
            below = f"at worst {points:.1f} points below" if points > 0 else "never worse than"
            terminal.print_text(f"{words} the guard, hostile streams: {below} the source model.")
