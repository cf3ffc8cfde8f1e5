"""`domainadaptor evaluate`: a network on labeled test images, with the methods you name beside each other."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Column, Table
from rich.text import Text

from domainadaptor.cli.options import (
    DataOptions,
    Mean,
    MethodOptions,
    Resize,
    Std,
    parse_data_options,
    parse_options_by_method,
    split_pairs,
)
from domainadaptor.cli.terminal import (
    BatchSize,
    Device,
    Exit,
    Json,
    Network,
    Root,
    Seed,
    err,
    find_device,
    out,
    print_json,
    progress_bar,
    show_notes,
)
from domainadaptor.errors import BadOption
from domainadaptor.options import parse_options

# Headings of reports, with digits.
_ACCURACY = {"images": 0, "untouched": 1, "before step": 1, "after": 1, "better": 1, "worse": 1}
_PRICE = {"changed": 1, "ECE untouched": 1, "ECE after": 1, "ms a batch": 0, "times plain": 2, "memory, MB": 0}


def evaluate(
    network: Network,
    dataset: Annotated[str, typer.Argument(help="pacs, vlcs, office-home, digits, folders …: see `data list`.")],
    target: Annotated[
        list[str] | None, typer.Option(help="A domain to test on; may be repeated; all unseen ones otherwise.")
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="May be repeated; source and domainadaptor-t otherwise.")
    ] = None,
    option: MethodOptions = None,
    protocol: Annotated[
        str,
        typer.Option(help="leave-one-out, few-data, continual …: see `protocols`."),
    ] = "leave-one-out",
    protocol_option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="An option of the protocol, as subset=128.")
    ] = None,
    images: Annotated[int | None, typer.Option(min=1, help="At most so many of each domain, drawn by --order.")] = None,
    batch_size: BatchSize = 64,
    order: Annotated[int, typer.Option(min=0, help="Seed of the order of images, the same for all methods.")] = 0,
    seed: Seed = 0,
    weights: Annotated[
        str | None, typer.Option(help="For a network by name: a file, or pretrained for published ones.")
    ] = None,
    classes: Annotated[
        Path | None,
        typer.Option(help="For --weights FILE: the names of its outputs, in order; one a line or a JSON list."),
    ] = None,
    size: Annotated[int | None, typer.Option(min=1, help="For --weights FILE: input side.")] = None,
    resize: Resize = None,
    mean: Mean = None,
    std: Std = None,
    source: Annotated[
        list[str] | None,
        typer.Option(help="Domains whose images stand for the source, for methods that look at some."),
    ] = None,
    measure: Annotated[
        str, typer.Option(help="Measure something else: statistics-distances, classifier-norms, loss-curves …")
    ] = "",
    root: Root = None,
    data_option: DataOptions = None,
    device: Device = "auto",
    output: Annotated[
        Path | None, typer.Option(help="A folder that keeps the records: cells that are there are not run again.")
    ] = None,
    by_class: Annotated[bool, typer.Option("--by-class", help="Show the accuracy of every class too.")] = False,
    cache: Annotated[bool, typer.Option(help="Keep decoded images on disk.")] = True,
    as_json: Json = False,
) -> None:
    """Test a network on domains it never saw, untouched and adapted, under a protocol that says all of the order."""
    from domainadaptor.lab.data.image_cache import cache_folder
    from domainadaptor.lab.evaluation.protocols import find_protocol
    from domainadaptor.lab.experiments.analyses import find_measurement
    from domainadaptor.lab.experiments.networks import LocatedNetwork, named_run
    from domainadaptor.lab.experiments.run_spec import RunSpec
    from domainadaptor.lab.experiments.runner import Runner
    from domainadaptor.lab.experiments.sweep import run_once
    from domainadaptor.lab.networks.weights import WeightsOptions, is_weights_file
    from domainadaptor.lab.prediction import read_classes
    from domainadaptor.lab.records.store import Store

    methods = method or ["source", "domainadaptor-t"]
    if measure:
        method_options = {methods[0]: parse_options(find_measurement(measure), split_pairs(option), measure)}
    else:
        method_options = parse_options_by_method(methods, option)
    texts = split_pairs(protocol_option, "--protocol-option", "subset=128")
    protocol_options = parse_options(find_protocol(protocol), texts, protocol)
    runner = Runner(root, cache_folder() / "images" if cache else None, find_device(device))
    argument = named_run(network, cache_folder() / "runs")
    located = LocatedNetwork(
        network,
        network,
        Path(argument) if is_weights_file(argument) else None,
        weights,
        raw=WeightsOptions(
            resize, size, mean, std, tuple(read_classes(classes)) if classes else (), str(classes or "")
        ),
    )
    if is_weights_file(argument) or weights == "pretrained":
        located.raw.check_wanted(located.label)
    if weights is None and not is_weights_file(argument):
        raise BadOption(
            f"{network!r} is neither a checkpoint nor a run of `train` in {str(cache_folder() / 'runs')!r}; with which "
            "weights? say --weights FILE or --weights pretrained"
        )
    options = parse_data_options(dataset, data_option)
    domains = list(dict.fromkeys(target or _unseen(runner, located, dataset, options)))
    for name in (*domains, *(source or ())):
        runner.dataset(dataset, options).domain(name)
    streams = [(domain,) for domain in domains] if protocol == "leave-one-out" else [tuple(domains)]
    specs = [
        RunSpec(
            dataset=dataset,
            domains=stream,
            network=located,
            method=name,
            options=method_options[name],
            data_options=options,
            protocol=protocol,
            protocol_options=protocol_options,
            batch_size=batch_size,
            images=images,
            order=order,
            seed=seed,
            sources=tuple(source or ()),
            measure=measure,
        )
        for stream in streams  # all methods on one, so that the untouched network is asked once
        for name in ([methods[0]] if measure else dict.fromkeys(methods))
    ]
    with ExitStack() as stack:
        store = None if output is None else stack.enter_context(Store(output, lambda text: show_notes([text])))
        bar = stack.enter_context(progress_bar(total=0))
        records = []
        for spec in specs:
            bar.say(f"{spec.measure or spec.method} on {'+'.join(spec.domains)}")
            found = runner.run(spec, bar.at) if store is None else run_once(spec, runner, store, bar.at)
            records.append({"id": found.id, **found.model_dump(mode="json", by_alias=True)})
    records.sort(key=lambda record: methods.index(record["run"]["method"] or methods[0]))
    if as_json:
        print_json(records)
    else:
        _show(records)
        if by_class:
            _show_classes(records)
        show_notes(dict.fromkeys(note for record in records for note in record["notes"]))
    skipped = {name: why for record in records for name, why in record.get("skipped", {}).items()}
    for name, why in skipped.items():
        err.print(f"skipped {name}: {why}", markup=False, highlight=False, soft_wrap=True)
    if skipped:
        raise typer.Exit(Exit.SOME_SKIPPED)


def _unseen(runner: Any, located: Any, dataset: str, options: Mapping[str, Any]) -> list[str]:
    """The domains that the network was not trained on; all of them where that is not known."""
    domains = runner.dataset(dataset, options).domains
    sources = runner.sources_of(located, dataset, options)
    return [name for name in domains if name not in sources] or list(domains)


def _show(records: Sequence[Mapping[str, Any]]) -> None:
    from domainadaptor.lab.reports.grid import number
    from domainadaptor.lab.reports.views.details import MEANING, domain_numbers, numbers_of

    if records[0]["kind"] == "measurement":
        print_json([record["values"] for record in records])
        return
    for title, headings, caption in (
        (f"Accuracy in percent, {records[0]['run']['protocol']}", _ACCURACY, ""),
        ("Changed answers in percent, calibration, time, memory", _PRICE, MEANING),
    ):
        columns = [Column(name, justify="right", width=max(map(len, [*name.split(), "10,000"]))) for name in headings]
        table = Table(Column("method, domain", no_wrap=True), *columns, title=title, caption=caption)
        for at, record in enumerate(records):
            several = len(record["scores"]) > 1  # in one stream: time and memory are known of all together
            lines = {f"  {domain}": domain_numbers([record], domain) for domain in record["scores"]}
            if at == 0 or record["run"]["method"] != records[at - 1]["run"]["method"]:
                lines = {record["run"]["method"]: numbers_of([record]) if several else {}} | lines
            for label, known in lines.items():
                table.add_row(Text(label), *(number(known.get(name), digits) for name, digits in headings.items()))
        out.print(table)


def _show_classes(records: Sequence[Mapping[str, Any]]) -> None:
    from domainadaptor.lab.reports.grid import number
    from domainadaptor.lab.reports.views.details import class_numbers

    headings = [Column(name, no_wrap=True) for name in ("method", "domain", "class")]
    table = Table(*headings, "images", "untouched", "after", title="Accuracy in percent, by class")
    for record in records:
        for domain in record.get("scores", ()):
            for name, images, untouched, after in class_numbers([record], domain):
                words = (record["run"]["method"], domain, name, str(images))
                table.add_row(*map(Text, words), number(untouched), number(after))
    out.print(table)
