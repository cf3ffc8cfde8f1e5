"""Experiment files: tables of rows and columns, validated as a whole before anything runs."""

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

import domainadaptor
from domainadaptor import registry
from domainadaptor.catalog import METHODS, method_options
from domainadaptor.errors import AdaptationError, BadFile, BadOption
from domainadaptor.lab.data.domains import DomainDataset
from domainadaptor.lab.data.registry import data_options
from domainadaptor.lab.evaluation.protocols import PROTOCOLS, check_protocol, protocol_options
from domainadaptor.lab.experiments.analyses import find_measurement, measurements
from domainadaptor.lab.experiments.file_model import FileModel, Texts, problem_of
from domainadaptor.lab.experiments.networks import Networks, pattern_problems, read_networks
from domainadaptor.lab.experiments.tables import PROTOCOL, SWEPT, RowSpec, TableSpec, known_options
from domainadaptor.lab.records.plans import check_file_name
from domainadaptor.options import coerce_options, suggestion

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NETWORKS = "networks.toml"
_FROM_RUN = ("source_images", "target_images", "task", "learned_loss")  # options taken from the network and the data
OpenDataset = Callable[[str, Mapping[str, Any]], DomainDataset]


class _File(FileModel):
    title: str = ""
    about: str = ""
    remarks: Texts = ()
    table: list[dict[str, Any]] = Field(default=[], min_length=1)
    rows: dict[str, dict[str, Any]] = {}
    networks: dict[str, Any] = {}


@dataclass(frozen=True)
class Experiment:
    """A valid experiment file."""

    name: str
    file: Path
    title: str
    about: str
    remarks: tuple[str, ...]
    tables: tuple[TableSpec, ...]
    networks: Networks


def read_experiment(
    path: Path,
    runs: Path,
    given: Mapping[str, str] | None = None,
    dataset: OpenDataset | None = None,
    views: Collection[str] | None = None,
) -> Experiment:
    """Read an experiment file, with the networks in networks.toml next to it; a BadFile lists all problems.

    Args:
        path: The file.
        runs: The folder of trained networks.
        given: Names of networks -> the user's own checkpoints, with {target} and {seed} where there are several.
        dataset: Opens a data set, to check the names of domains if it is available.
        views: Names that `show` may have; not checked if None.
    """
    content = _toml(path)
    problems = [f"{key!r} is missing" for key in ("title", "table") if key not in content]
    try:
        check_file_name(path.stem)
    except ValueError as error:
        problems.append(f"rename the file: {error}")
    file = _File.read(content, problems)
    beside = path.parent / NETWORKS
    tables = (_toml(beside) if beside.is_file() else {}) | file.networks
    networks = Networks(read_networks(tables, problems), runs, given or {})
    for name, pattern in networks.given.items():
        texts = [suggestion(name, tables)] if name not in tables else pattern_problems(pattern)
        problems += [f"--checkpoint {name}=…: {text}" for text in texts]
    rows = {label: _row(label, entry, problems) for label, entry in file.rows.items()}
    found = []
    for number, entry in enumerate(file.table, 1):
        wrong: list[str] = []
        found.append(table := TableSpec.read(entry, wrong))
        table._lines = tuple(rows[label] for label in table.rows or rows if label in rows)
        wrong += [f"{key!r} is missing" for key in ("title", "dataset", "network") if key not in entry]
        wrong += ["expected either domains or groups of them"] if ("domains" in entry) == ("groups" in entry) else []
        wrong += _table_problems(table, rows, networks, views)
        wrong += _data_problems(table, dataset)
        where = f"table {number}" + (f" ({table.title!r})" if table.title else "")
        problems += [f"{where}: {text}" for text in dict.fromkeys(wrong)]
    if problems:
        lines = "\n".join(f"  - {problem}" for problem in problems)
        raise BadFile(f"Invalid experiment file {str(path)!r}; nothing was run:\n{lines}")
    return Experiment(path.stem, path, file.title, file.about.strip(), file.remarks, tuple(found), networks)


def _toml(path: Path) -> dict[str, Any]:
    try:
        return dict(tomllib.loads(path.read_text(encoding="utf-8-sig")))
    except OSError as error:
        why = f"{error.strerror or error}; `domainadaptor run --list` lists the folder experiments"
        raise BadFile(f"No experiment file at {str(path)!r}: {why}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadFile(f"{str(path)!r} is not valid TOML: {error}") from error


def _row(label: str, entry: Mapping[str, Any], problems: list[str]) -> RowSpec:
    wrong: list[str] = []
    row = RowSpec.read(entry, wrong)
    row._label = label
    given = {name: value for name, value in entry.items() if name not in RowSpec.model_fields}
    if row.method or row.measure:
        wrong += _option_problems(row.method, row.measure, given)
    elif not {"method", "measure"} & set(entry):
        wrong.append(f"method is missing; {suggestion('', domainadaptor.list_methods())}")
    problems += [f"row {label!r}: {text}" for text in dict.fromkeys(wrong)]
    return row


def _option_problems(method: str, measure: str, options: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the name of a method or measurement, with each option, or with all together."""
    try:  # registered names only: a file must not import code
        function = find_measurement(measure) if measure else registry.find(METHODS, "method", method)
    except BadOption as error:
        return [str(error)]
    found = []
    for name, value in options.items():
        if name in _FROM_RUN:
            found.append(f"{name} cannot be set in a file: it is taken from the network and the data")
        elif name != "guard":
            found += problem_of(coerce_options, function, {name: value}, measure or method)
    return found if found or measure else problem_of(method_options, method, options)


def _table_problems(
    table: TableSpec, rows: Mapping[str, RowSpec], networks: Networks, views: Collection[str] | None
) -> Iterator[str]:
    """Yield what is wrong with a table besides its data and the types of its values."""
    yield from (f"rows: there is no row {name!r}; {suggestion(name, rows)}" for name in table.rows if name not in rows)
    if not rows:
        yield "expected rows, each under [rows.NAME]"
    several = [name for name, stream in table.groups.items() if len(stream) > 1]
    for name in dict.fromkeys(name for name in (table.network, *(row.network for row in table.lines)) if name):
        if name not in networks.entries:
            yield f"there is no network {name!r}; {suggestion(name, networks.entries)}"
        elif several and networks.entry(name).depends_on_target():
            yield f"{name!r} is a different network for each target, so it cannot adapt to the group {several[0]!r}"
    if table.show and views is not None and table.show not in {*views, *measurements()}:
        yield f"show = {table.show!r} is not known; {suggestion(table.show, views)}"
    yield from _measure_problems(table)
    yield from _setting_problems(table)


def _data_problems(table: TableSpec, dataset: OpenDataset | None) -> Iterator[str]:
    """Check the data set, its options, and its domains if it is available."""
    if not table.dataset:
        return
    try:
        known = data_options(table.dataset)
        for option in (name for name in table.data_options if name not in known):
            raise BadOption(f"{table.dataset} has no option {option!r}; {suggestion(option, known)}")
        if dataset is None:
            return
        opened = dataset(table.dataset, table.data_options)
    except BadOption as error:
        yield str(error)
        return
    except AdaptationError:  # it is not available: its runs are missing
        return
    grouped = [domain for stream in table.groups.values() for domain in stream]
    for domain in dict.fromkeys([*table.domains, *grouped, *table.sources]):
        yield from problem_of(opened.domain, domain)


def _measure_problems(table: TableSpec) -> Iterator[str]:
    """Check that what a table measures, its options, and how it is shown belong together."""
    measured = list(dict.fromkeys(row.measure or table.measure for row in table.lines))
    for row in table.lines if table.measure else ():
        wrong = [] if row.measure else _option_problems(row.method, table.measure, row.options)
        yield from (f"row {row.label!r}: {text}" for text in wrong)
    if len(measured) > 1:
        yield f"expected rows of one measurement, or of none; got {', '.join(map(repr, measured))}"
    elif measured and (measured[0] or table.show in measurements()) and table.show not in ("", measured[0]):
        yield f"show = {table.show!r} does not fit measure = {measured[0]!r}: a measurement is shown by its own name"


def _setting_problems(table: TableSpec) -> Iterator[str]:
    """Check protocols, and the swept option of each row with each of its values."""
    name = table.sweep.option if table.sweep else ""
    values: Sequence[Any] = table.sweep.values if table.sweep else (None,)
    protocols = {name: protocol_options(name) for name in PROTOCOLS}
    known = {*SWEPT, *protocols.get(table.protocol, ())}.union(
        *(known_options(row, row.measure or table.measure) for row in table.lines)
    )
    if name and name not in known:
        yield f"sweep over {name!r}, which none of the rows has; {suggestion(name, sorted(known))}"
        return
    for value in values:
        if name in SWEPT and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            yield f"sweep over {name} with {value!r}: expected a whole number of at least 1"
        for row in table.lines or [
            RowSpec.model_validate({"method": "source"})
        ]:  # if no row is valid, the rest is still checked
            protocol = row.protocol or table.protocol
            options = dict(table.protocol_options if row.protocol_options is None else row.protocol_options)
            if protocol == PROTOCOL and any(len(stream) > 1 for stream in table.groups.values()):
                yield f"{PROTOCOL} takes one domain at a time: expected domains, or another protocol for groups"
            swept = {name: value} if name in protocols.get(protocol, ()) else {}
            wrong = problem_of(check_protocol, protocol, options | swept)
            yield from (f"row {row.label!r}: {text}" if row.protocol else text for text in wrong)
            measure = row.measure or table.measure
            if name in known_options(row, measure) and name not in {*row.options, *SWEPT}:
                wrong = _option_problems(row.method, measure, {**row.options, name: value})
                yield from (f"row {row.label!r}: {text}" for text in wrong)
