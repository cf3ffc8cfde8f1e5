"""`domainadaptor evaluate`: accuracy of methods on labeled images, next to the source model."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Column, Table
from rich.text import Text

from domainadaptor.catalog import DEFAULT_METHOD
from domainadaptor.cli import options, terminal
from domainadaptor.cli.help import ADAPTATION, DATA, RUN, option
from domainadaptor.options import parse_options

if TYPE_CHECKING:  # they take seconds to import
    from domainadaptor.lab.experiments.networks import LocatedNetwork
    from domainadaptor.lab.experiments.run_spec import RunSpec
    from domainadaptor.lab.experiments.runner import Runner
    from domainadaptor.lab.records.runs import EvaluationRecord, RunRecord

EXAMPLES = r"""
domainadaptor evaluate checkpoint.safetensors my-images
domainadaptor evaluate checkpoint.safetensors my-images \
    --method source --method tent --option tent:lr=0.01
"""

_DATA = "A folder, <domain>/<class>/* or <class>/*; or the name of a data set: see `data list`."
_TARGET = "A domain to test on; repeatable. Default: all that the network was not trained on."
_SOURCE = "A source domain, for methods that use source images; repeatable."
_MEASURE = "Measure something else: statistics-distances, classifier-norms, loss-curves …"
_Texts = list[str] | None


def evaluate(
    network: terminal.Network,
    dataset: Annotated[str, typer.Argument(metavar="DATA", help=_DATA)],
    weights: terminal.Weights = None,
    classes: terminal.Classes = None,
    size: terminal.Size = None,
    resize: options.Resize = None,
    crop_pct: options.CropPct = None,
    mean: options.Mean = None,
    std: options.Std = None,
    root: terminal.Root = None,
    target: Annotated[_Texts, option("NAME", _TARGET, DATA)] = None,
    source: Annotated[_Texts, option("NAME", _SOURCE, DATA)] = None,
    images: Annotated[int | None, option("N", "At most N images per domain.", DATA, min=1)] = None,
    order: Annotated[int, option("N", "Seed of the order of the images.", DATA, min=0)] = 0,
    data_option: options.DataOptions = None,
    method: terminal.Methods = None,
    method_option: options.MethodOptions = None,
    batch_size: terminal.BatchSize = 64,
    protocol: Annotated[str, option("NAME", "few-data, continual …: see `protocols`.", ADAPTATION)] = "leave-one-out",
    protocol_option: Annotated[_Texts, option("NAME=VALUE", "An option, such as subset=128.", ADAPTATION)] = None,
    measure: Annotated[str, option("NAME", _MEASURE, ADAPTATION)] = "",
    output: Annotated[Path | None, option("DIR", "Folder for records; recorded runs are not repeated.", RUN)] = None,
    cache: terminal.Cache = True,
    seed: terminal.Seed = 0,
    device: terminal.Device = "auto",
    as_json: terminal.Json = False,
) -> None:
    """Test a network on new domains, without and with adaptation.

    A protocol decides in which order a method sees images and when it is reset. Without --method, the source model and
    the default method are compared.
    The exit code is 5 if predictions look worse than the source model's, judged without labels.
    """
    from domainadaptor.lab.data.image_cache import cache_folder
    from domainadaptor.lab.evaluation.protocols import find_protocol
    from domainadaptor.lab.experiments.run_spec import RunSpec
    from domainadaptor.lab.experiments.runner import Runner
    from domainadaptor.lab.networks.inputs import InputOptions, read_classes

    dataset, root = options.find_data(dataset, root)
    methods = list(dict.fromkeys(method or ["source", DEFAULT_METHOD]))[: 1 if measure else None]
    method_options = _method_options(methods, method_option, measure)
    texts = options.split_pairs(protocol_option, "--protocol-option", "subset=128")
    protocol_options = parse_options(find_protocol(protocol), texts, protocol)
    runner = Runner(root, cache_folder() / "images" if cache else None, terminal.find_device(device))
    names = tuple(read_classes(classes)) if classes else ()
    located = _locate(network, weights, InputOptions(resize, size, mean, std, names, str(classes or ""), crop_pct))
    data_options = options.parse_data_options(dataset, data_option)
    opened = runner.dataset(dataset, data_options)
    seen = () if target else runner.sources_of(located, dataset, data_options)
    unseen = [name for name in opened.domains if name not in seen] or opened.domains
    domains = tuple(dict.fromkeys(target or unseen))
    for name in (*domains, *(source or ())):
        opened.domain(name)
    specs = [
        RunSpec(
            dataset=dataset,
            domains=stream,
            network=located,
            method=name,
            options=method_options[name],
            data_options=data_options,
            protocol=protocol,
            protocol_options=protocol_options,
            batch_size=batch_size,
            images=images,
            order=order,
            seed=seed,
            sources=tuple(source or ()),
            measure=measure,
        )
        for stream in ([(domain,) for domain in domains] if protocol == "leave-one-out" else [domains])
        for name in methods  # all on one stream, so that the source model predicts it once
    ]
    records = _run(runner, specs, output)
    records.sort(key=lambda record: methods.index(record.run.method or methods[0]))
    if code := _show(records, as_json):
        raise typer.Exit(code)


def _method_options(methods: list[str], pairs: list[str] | None, measure: str) -> dict[str, dict[str, Any]]:
    from domainadaptor.lab.experiments.analyses import find_measurement

    if measure:
        return {methods[0]: parse_options(find_measurement(measure), options.split_pairs(pairs), measure)}
    return options.parse_options_by_method(methods, pairs)


def _locate(network: str, weights: str | None, given: Any) -> "LocatedNetwork":
    """Return the network of a checkpoint, of a training run, or of a name with weights."""
    from domainadaptor.lab.data.image_cache import cache_folder
    from domainadaptor.lab.experiments.networks import LocatedNetwork, named_run
    from domainadaptor.lab.networks.weights import includes_weights, is_weights_file

    path = named_run(network, cache_folder() / "runs")
    located = LocatedNetwork(network, network, Path(path) if is_weights_file(path) else None, weights, raw=given)
    if weights is None and not includes_weights(path):
        terminal.check_weights(network, weights)
    return located


def _run(runner: "Runner", specs: "Sequence[RunSpec]", output: Path | None) -> list["RunRecord"]:
    from domainadaptor.lab.experiments.sweep import run_once
    from domainadaptor.lab.records.store import Store

    records: list[RunRecord] = []
    opened = nullcontext() if output is None else Store(output, lambda text: terminal.show_notes([text]))
    with opened as store, terminal.progress_bar(total=0) as bar:
        for spec in specs:
            bar.show(f"{spec.measure or spec.method} on {'+'.join(spec.domains)}")
            records.append(runner.run(spec, bar.at) if store is None else run_once(spec, runner, store, bar.at))
    return records


def _show(records: Sequence["RunRecord"], as_json: bool) -> int:
    """Print tables or JSON; return the exit code."""
    from domainadaptor.lab.records.runs import EvaluationRecord

    found = [record for record in records if isinstance(record, EvaluationRecord)]
    dumped = [{"id": record.id, **record.model_dump(mode="json", by_alias=True)} for record in records]
    if as_json or not found:
        terminal.print_json(dumped if as_json else [record["values"] for record in dumped])
    else:
        _show_accuracy(found)
    if not as_json:
        terminal.show_notes(dict.fromkeys(note for record in records for note in record.notes))
    skipped = {name: why for record in found for name, why in record.skipped.items()}
    terminal.show_skipped(skipped.items())
    for record in found:
        terminal.show_warning(f"the predictions of {record.run.method} on {', '.join(record.scores)}", record.warnings)
    if any(record.warnings for record in found):
        return terminal.Exit.DOUBTFUL
    return terminal.Exit.SOME_SKIPPED if skipped else 0


def _show_accuracy(records: Sequence["EvaluationRecord"]) -> None:
    """Print the mean over domains and each domain, with the methods side by side, or in rows if they are too many."""
    found: dict[str, dict[str, float]] = {}  # method -> domain -> accuracy, the source model first
    for record in records:
        for domain, score in record.scores.items():
            for name, right in (("source model", score.source_right), (record.run.method, score.right)):
                found.setdefault(name, {})[domain] = 100 * right / score.images
    if found.get("source") == found["source model"]:
        del found["source"]
    if len(found["source model"]) > 1:
        found = {name: {"mean": sum(values.values()) / len(values), **values} for name, values in found.items()}
    methods, places = list(found), list(found["source model"])
    beside = sum(len(name) + 3 for name in methods) + max(map(len, places)) + 4 <= terminal.out.width
    table = Table(Column("domain" if beside else "method", overflow="fold"))
    table.title = f"Accuracy (%), {records[0].run.protocol}"
    for name in methods if beside else places:
        table.add_column(Text(name), justify="right", overflow="fold")
    for name in places if beside else methods:
        values = (found[method][name] for method in methods) if beside else found[name].values()
        table.add_row(Text(name), *(f"{value:.1f}" for value in values), end_section=name == "mean")
    terminal.out.print(table)
