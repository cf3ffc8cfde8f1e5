"""`domainadaptor evaluate`: accuracy on labeled images, before and after adaptation, for one or more methods."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Column, Table
from rich.text import Text

from domainadaptor.cli.help import ADAPTATION, DATA, RUN
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
    Cache,
    Classes,
    Dataset,
    Device,
    Exit,
    Json,
    Methods,
    Network,
    Root,
    Seed,
    Size,
    Weights,
    err,
    find_device,
    out,
    print_json,
    print_text,
    progress_bar,
    show_notes,
)
from domainadaptor.errors import BadOption
from domainadaptor.options import parse_options

if TYPE_CHECKING:  # they take seconds to import
    from domainadaptor.lab.experiments.networks import LocatedNetwork
    from domainadaptor.lab.experiments.run_spec import RunSpec
    from domainadaptor.lab.experiments.runner import Runner
    from domainadaptor.lab.records.runs import EvaluationRecord, RunRecord

# Columns of the tables, with digits.
_ACCURACY = {"images": 0, "source model": 1, "before step": 1, "after": 1, "better": 1, "worse": 1}
_COST = {
    "changed": 1, "ECE source model": 1, "ECE after": 1, "ms per batch": 0, "relative time": 2, "peak memory, MB": 0,
}  # fmt: skip


def evaluate(
    network: Network,
    dataset: Dataset,
    weights: Weights = None,
    classes: Classes = None,
    size: Size = None,
    resize: Resize = None,
    mean: Mean = None,
    std: Std = None,
    root: Root = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=DATA,
            help="A domain to test on; may be repeated. Default: all that the network was not trained on.",
        ),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", rich_help_panel=DATA, help="A source domain, for methods that use source images."),
    ] = None,
    images: Annotated[
        int | None, typer.Option(min=1, metavar="N", rich_help_panel=DATA, help="At most N images per domain.")
    ] = None,
    order: Annotated[
        int, typer.Option(min=0, metavar="N", rich_help_panel=DATA, help="Seed of the order of the images.")
    ] = 0,
    data_option: DataOptions = None,
    method: Methods = None,
    option: MethodOptions = None,
    batch_size: BatchSize = 64,
    protocol: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=ADAPTATION,
            help="leave-one-out, few-data, continual …: see `domainadaptor protocols`.",
        ),
    ] = "leave-one-out",
    protocol_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", rich_help_panel=ADAPTATION, help="An option of the protocol, such as subset=128."
        ),
    ] = None,
    measure: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=ADAPTATION,
            help="Measure something else instead: statistics-distances, classifier-norms, loss-curves …",
        ),
    ] = "",
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", rich_help_panel=RUN, help="Folder for records; runs that have a record are not repeated."
        ),
    ] = None,
    details: Annotated[
        bool, typer.Option("--details", rich_help_panel=RUN, help="Show calibration, time and memory too.")
    ] = False,
    by_class: Annotated[
        bool, typer.Option("--by-class", rich_help_panel=RUN, help="Show the accuracy of every class too.")
    ] = False,
    cache: Cache = True,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Test a network on new domains, before and after adaptation.

    A protocol decides in which order a method sees images and when it is reset. Default methods: source and
    domainadaptor-t.
    """
    from domainadaptor.lab.data.image_cache import cache_folder
    from domainadaptor.lab.evaluation.protocols import find_protocol
    from domainadaptor.lab.experiments.run_spec import RunSpec
    from domainadaptor.lab.experiments.runner import Runner
    from domainadaptor.lab.networks.weights import WeightsOptions
    from domainadaptor.lab.prediction import read_classes

    methods = list(dict.fromkeys(method or ["source", "domainadaptor-t"]))[: 1 if measure else None]
    method_options = _method_options(methods, option, measure)
    texts = split_pairs(protocol_option, "--protocol-option", "subset=128")
    protocol_options = parse_options(find_protocol(protocol), texts, protocol)
    runner = Runner(root, cache_folder() / "images" if cache else None, find_device(device))
    names = tuple(read_classes(classes)) if classes else ()
    located = _locate(network, weights, WeightsOptions(resize, size, mean, std, names, str(classes or "")))
    options = parse_data_options(dataset, data_option)
    domains = tuple(dict.fromkeys(target or _unseen(runner, located, dataset, options)))
    for name in (*domains, *(source or ())):
        runner.dataset(dataset, options).domain(name)
    first = RunSpec(
        dataset=dataset,
        domains=domains,
        network=located,
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
    streams = [(domain,) for domain in domains] if protocol == "leave-one-out" else [domains]
    specs = [
        replace(first, domains=stream, method=name, options=method_options[name])
        for stream in streams  # all methods on one stream, so that the source model predicts it once
        for name in methods
    ]
    records = _run(runner, specs, output)
    records.sort(key=lambda record: methods.index(record.run.method or methods[0]))
    if as_json:
        print_json([{"id": record.id, **record.model_dump(mode="json", by_alias=True)} for record in records])
    else:
        _show(records, details, by_class)
    if _show_skipped(records):
        raise typer.Exit(Exit.SOME_SKIPPED)


def _method_options(methods: list[str], pairs: list[str] | None, measure: str) -> dict[str, dict[str, Any]]:
    from domainadaptor.lab.experiments.analyses import find_measurement

    if measure:
        return {methods[0]: parse_options(find_measurement(measure), split_pairs(pairs), measure)}
    return parse_options_by_method(methods, pairs)


def _locate(network: str, weights: str | None, given: Any) -> "LocatedNetwork":
    """Return the network of a checkpoint, of a training run, or of a name with weights."""
    from domainadaptor.lab.data.image_cache import cache_folder
    from domainadaptor.lab.experiments.networks import LocatedNetwork, named_run
    from domainadaptor.lab.networks.weights import is_weights_file

    runs = cache_folder() / "runs"
    path = named_run(network, runs)
    located = LocatedNetwork(network, network, Path(path) if is_weights_file(path) else None, weights, raw=given)
    if is_weights_file(path) or weights == "pretrained":
        located.raw.refuse(located.label)
    elif weights is None:
        raise BadOption(
            f"No weights given: {network!r} is neither a checkpoint nor a training run in {str(runs)!r}. Pass "
            "--weights FILE or --weights pretrained"
        )
    return located


def _unseen(runner: "Runner", located: "LocatedNetwork", dataset: str, options: Mapping[str, Any]) -> list[str]:
    """Return the domains that the network was not trained on, or all of them where that is unknown."""
    domains = runner.dataset(dataset, options).domains
    sources = runner.sources_of(located, dataset, options)
    return [name for name in domains if name not in sources] or list(domains)


def _run(runner: "Runner", specs: "Sequence[RunSpec]", output: Path | None) -> list["RunRecord"]:
    from domainadaptor.lab.experiments.sweep import run_once
    from domainadaptor.lab.records.store import Store

    records: list[RunRecord] = []
    with ExitStack() as stack:
        store = None if output is None else stack.enter_context(Store(output, lambda text: show_notes([text])))
        bar = stack.enter_context(progress_bar(total=0))
        for spec in specs:
            bar.say(f"{spec.measure or spec.method} on {'+'.join(spec.domains)}")
            records.append(runner.run(spec, bar.at) if store is None else run_once(spec, runner, store, bar.at))
    return records


def _evaluations(records: Sequence["RunRecord"]) -> list["EvaluationRecord"]:
    from domainadaptor.lab.records.runs import EvaluationRecord

    return [record for record in records if isinstance(record, EvaluationRecord)]


def _show(records: Sequence["RunRecord"], details: bool, by_class: bool) -> None:
    from domainadaptor.lab.records.runs import MeasurementRecord

    if measured := [record.values for record in records if isinstance(record, MeasurementRecord)]:
        print_json(measured)
    else:
        found = _evaluations(records)
        _show_accuracy(found)
        if details:
            _show_details(found)
        if by_class:
            _show_classes(found)
    show_notes(dict.fromkeys(note for record in records for note in record.notes))


def _show_skipped(records: Sequence["RunRecord"]) -> bool:
    skipped = {name: why for record in _evaluations(records) for name, why in record.skipped.items()}
    for name, why in skipped.items():
        print_text(f"skipped {name}: {why}", err)
    return bool(skipped)


def _show_accuracy(records: Sequence["EvaluationRecord"]) -> None:
    """Print a row per domain and a column per method, the source model first."""
    columns: dict[str, dict[str, float]] = {}
    for record in records:
        for domain, score in record.scores.items():
            for name, right in (("source model", score.source_right), (record.run.method, score.right)):
                columns.setdefault(name, {})[domain] = 100 * right / score.images
    if columns.get("source") == columns["source model"]:
        del columns["source"]
    table = Table(Column("domain", overflow="fold"), title=f"Accuracy (%), {records[0].run.protocol}")
    for name in columns:
        table.add_column(Text(name), justify="right", overflow="fold")
    for domain in columns["source model"]:
        table.add_row(Text(domain), *(f"{values[domain]:.1f}" for values in columns.values()))
    if len(columns["source model"]) > 1:
        table.add_section()
        table.add_row("mean", *(f"{sum(values.values()) / len(values):.1f}" for values in columns.values()))
    out.print(table)


def _show_details(records: Sequence["EvaluationRecord"]) -> None:
    from domainadaptor.lab.reports.details import MEANING, numbers_of, of_domain
    from domainadaptor.lab.reports.numbers import number

    for title, headings, caption in (
        (f"Accuracy in percent, {records[0].run.protocol}", _ACCURACY, ""),
        ("Changed answers in percent, calibration, time, memory", _COST, MEANING),
    ):
        columns = [Column(name, justify="right", width=max(map(len, [*name.split(), "10,000"]))) for name in headings]
        table = Table(Column("method, domain", no_wrap=True), *columns, title=title, caption=caption)
        for at, record in enumerate(records):
            several = len(record.scores) > 1  # in one stream: time and memory are known only for all together
            lines = {f"  {domain}": numbers_of([of_domain(record, domain)]) for domain in record.scores}
            if at == 0 or record.run.method != records[at - 1].run.method:
                lines = {record.run.method: numbers_of([record]) if several else {}} | lines
            for label, known in lines.items():
                table.add_row(Text(label), *(number(known.get(name), digits) for name, digits in headings.items()))
        out.print(table)


def _show_classes(records: Sequence["EvaluationRecord"]) -> None:
    from domainadaptor.lab.reports.counts import class_accuracies
    from domainadaptor.lab.reports.details import of_domain
    from domainadaptor.lab.reports.numbers import number

    headings = [Column(name, no_wrap=True) for name in ("method", "domain", "class")]
    table = Table(*headings, "images", "source model", "after", title="Accuracy in percent, by class")
    for record in records:
        for domain in record.scores:
            for name, images, source, after in class_accuracies([of_domain(record, domain)]):
                words = (record.run.method, domain, name, str(images))
                table.add_row(*map(Text, words), number(source), number(after))
    out.print(table)
