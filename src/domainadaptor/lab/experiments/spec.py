"""Experiment files: tables of rows and columns, validated as a whole before anything runs."""

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, JsonValue, PrivateAttr

import domainadaptor
from domainadaptor import registry
from domainadaptor.catalog import METHODS, method_info, method_options
from domainadaptor.errors import AdaptationError, BadFile, BadOption
from domainadaptor.lab.data.domains import DomainDataset
from domainadaptor.lab.data.registry import data_options
from domainadaptor.lab.evaluation.protocols import check_protocol, protocol_options
from domainadaptor.lab.experiments.analyses import find_measurement, measurements, needs_images
from domainadaptor.lab.experiments.file_model import FileModel, Names, Positive, Seed, Seeds, Texts, Values
from domainadaptor.lab.experiments.networks import LocatedNetwork, Networks, pattern_problems, read_networks
from domainadaptor.lab.experiments.run_spec import RunSpec
from domainadaptor.lab.records.base import Options
from domainadaptor.lab.records.plans import PaperNumber, PaperNumbers, check_file_name
from domainadaptor.options import coerce_options, defaults_of, suggestion

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NETWORKS = "networks.toml"
SWEPT = ("batch_size", "images")  # what a sweep may vary besides options of methods and protocols
_PROTOCOL = "leave-one-out"
_FROM_RUN = ("source_images", "target_images", "task", "learned_loss")  # options taken from the network and the data
OpenDataset = Callable[[str, Mapping[str, Any]], DomainDataset]
Locate = Callable[[str, str | None, int], LocatedNetwork]


class RowSpec(FileModel, extra="allow"):
    """One row of a table; other keys are options of its method or measurement."""

    __pydantic_extra__: dict[str, JsonValue]

    method: str = ""
    network: str = ""
    paper: str | PaperNumber | None = None  # what the paper's numbers call it, or the one number that it is
    group: str = ""
    images: Positive | None = None
    batch_size: Positive | None = None
    protocol: str | None = None
    protocol_options: Options | None = None
    measure: str = ""
    _label: str = PrivateAttr("")

    @property
    def label(self) -> str:
        """Its heading."""
        return self._label

    @property
    def options(self) -> dict[str, Any]:
        """Options of its method or measurement."""
        return dict(self.__pydantic_extra__)

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of its runs that replace the table's."""
        own = {name: getattr(self, name) for name in ("images", "batch_size", "protocol", "protocol_options")}
        return {name: value for name, value in own.items() if value is not None}


class SweepSpec(FileModel):
    """An option with one column per value."""

    option: str
    values: Values


class TableSpec(FileModel):
    """One table: rows, columns, and what its runs share."""

    title: str = ""
    dataset: str = ""
    data_options: Options = {}
    network: str = ""
    domains: Names = ()
    groups: dict[str, Names] = {}  # column -> domains of one stream
    sweep: SweepSpec | None = None
    seeds: Seeds = (0,)
    images: Positive | None = None
    batch_size: Positive = 64
    order: Seed = 0
    protocol: str = _PROTOCOL
    protocol_options: Options = {}
    sources: Names = ()
    show: str = ""  # the view of the report; accuracy, or what is measured
    mean: bool = True
    corner: str = "method"
    rows: Names = ()  # all of the file otherwise
    measure: str = ""
    paper: PaperNumbers | None = None
    _lines: tuple[RowSpec, ...] = PrivateAttr(())

    @property
    def lines(self) -> tuple[RowSpec, ...]:
        """Its rows."""
        return self._lines

    def columns(self) -> list[str]:
        """Return the headings of the columns."""
        return [str(value) for value in self.sweep.values] if self.sweep else list(self.groups or self.domains)

    def view(self) -> str:
        """Return the view that presents it."""
        return self.show or self.measure or next((row.measure for row in self.lines), "") or "accuracy"

    def sample(self) -> str:
        """Return in words how many images and seeds there are, and in which batches."""
        if not any(needs_images(row.measure or self.measure) for row in self.lines):
            return f"no test images: read off the trained networks, {len(self.seeds)} of each target"
        parts = {
            "images": "full test sets" if self.images is None else f"{self.images} seeded images per domain",
            "seeds": f"{len(self.seeds)} seeds" if len(self.seeds) > 1 else "one seed",
            "batch_size": f"batches of {self.batch_size}",
        }
        parts |= {} if self.protocol == _PROTOCOL else {"protocol": self.protocol}
        parts.pop(self.sweep.option if self.sweep else "", None)
        for row in self.lines:
            own = [f"{name.replace('_', ' ')} {v}" for name, v in row.settings.items() if v != getattr(self, name)]
            parts |= {f"row {row.label}": f"{row.label} with {' and '.join(own)}"} if own else {}
        return ", ".join(parts.values())

    def runs(self, row: RowSpec, column: str, seed: int, locate: Locate) -> list[RunSpec]:
        """Return the runs behind one number of one seed: one, or one per domain where a sweep averages over them."""
        settings: dict[str, Any] = {
            "protocol": self.protocol,
            "protocol_options": dict(self.protocol_options),
            "batch_size": self.batch_size,
            "images": self.images,
            **row.settings,
        }
        measure = row.measure or self.measure
        options = row.options
        if self.sweep:
            name, value = self.sweep.option, self.sweep.values[self.columns().index(column)]
            if name in SWEPT:
                settings[name] = value
            elif name in protocol_options(settings["protocol"]):
                settings["protocol_options"] = {**settings["protocol_options"], name: value}
            elif name in _known_options(row, measure) and name not in options:
                options[name] = value  # other rows have the same number in every column
        method = row.method or "source"
        typed = coerce_options(find_measurement(measure), options) if measure else method_options(method, options)
        streams = list(self.groups.values()) or [(domain,) for domain in self.domains]
        if not self.sweep:
            streams = [streams[self.columns().index(column)]]
        return [
            RunSpec(
                dataset=self.dataset,
                domains=stream,
                network=locate(row.network or self.network, stream[0] if len(stream) == 1 else None, seed),
                method=method,
                options=typed,
                data_options=self.data_options,
                order=self.order,
                seed=seed,
                sources=self.sources,
                measure=measure,
                **settings,
            )
            for stream in streams
        ]


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
    """Read an experiment file, with the networks in networks.toml next to it.

    Args:
        path: The file.
        runs: The folder of trained networks.
        given: Names of networks -> the user's own checkpoints, with {target} and {seed} where there are several.
        dataset: Opens a data set, to check the names of domains if it is available.
        views: Names that `show` may have; not checked if None.

    Raises:
        BadFile: It is missing, or anything in it is wrong; all problems are listed.
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
        wrong = [suggestion(name, tables)] if name not in tables else pattern_problems(pattern)
        problems += [f"--checkpoint {name}=…: {text}" for text in wrong]
    rows = {label: _row(label, entry, problems) for label, entry in file.rows.items()}
    found = []
    for number, entry in enumerate(file.table, 1):
        own: list[str] = []
        table = TableSpec.read(entry, own)
        table._lines = tuple(rows[label] for label in table.rows or rows if label in rows)
        own += _table_problems(table, entry, rows, networks, dataset, views)
        where = f"table {number}" + (f" ({table.title!r})" if table.title else "")
        problems += [f"{where}: {text}" for text in dict.fromkeys(own)]
        found.append(table)
    if problems:
        lines = "\n".join(f"  - {problem}" for problem in problems)
        raise BadFile(f"Invalid experiment file {str(path)!r}; nothing was run:\n{lines}")
    return Experiment(path.stem, path, file.title, file.about.strip(), file.remarks, tuple(found), networks)


def _toml(path: Path) -> dict[str, Any]:
    try:
        return dict(tomllib.loads(path.read_text(encoding="utf-8-sig")))
    except OSError as error:
        raise BadFile(
            f"No experiment file at {str(path)!r} ({error.strerror or error}); `domainadaptor run --list` lists the "
            "folder experiments"
        ) from error
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


def _problem(check: Callable[..., object], *values: Any) -> list[str]:
    try:
        check(*values)
    except BadOption as error:
        return [str(error)]
    return []


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
            found += _problem(coerce_options, function, {name: value}, measure or method)
    return found if found or measure else _problem(method_options, method, options)


def _table_problems(
    table: TableSpec,
    entry: Mapping[str, Any],
    rows: Mapping[str, RowSpec],
    networks: Networks,
    dataset: OpenDataset | None,
    views: Collection[str] | None,
) -> Iterator[str]:
    """Yield what is wrong with a table besides the types of its values."""
    yield from (f"{key!r} is missing" for key in ("title", "dataset", "network") if key not in entry)
    if ("domains" in entry) == ("groups" in entry):
        yield "expected either domains or groups of them"
    yield from (f"rows: there is no row {name!r}; {suggestion(name, rows)}" for name in table.rows if name not in rows)
    if not rows:
        yield "expected rows, each under [rows.NAME]"
    several = [name for name, stream in table.groups.items() if len(stream) > 1]
    for name in dict.fromkeys(name for name in (table.network, *(row.network for row in table.lines)) if name):
        if name not in networks.entries:
            yield f"there is no network {name!r}; {suggestion(name, networks.entries)}"
        elif several and networks.entry(name).depends_on_target():
            yield f"{name!r} is a different network for each target, so it cannot adapt to the group {several[0]!r}"
    yield from _data_problems(table, dataset)
    if table.show and views is not None and table.show not in {*views, *measurements()}:
        yield f"show = {table.show!r} is not known; {suggestion(table.show, views)}"
    yield from _measure_problems(table)
    yield from _setting_problems(table)


def _data_problems(table: TableSpec, dataset: OpenDataset | None) -> Iterator[str]:
    """Check the data set, its options, and its domains if it is available."""
    if not table.dataset:
        return
    if wrong := _problem(_check_data, table.dataset, table.data_options):
        yield from wrong
        return
    try:
        opened = None if dataset is None else dataset(table.dataset, table.data_options)
    except BadOption as error:
        yield str(error)
        return
    except AdaptationError:  # it is not available: its runs are missing
        return
    grouped = [domain for stream in table.groups.values() for domain in stream]
    for domain in dict.fromkeys([*table.domains, *grouped, *table.sources]) if opened else ():
        yield from _problem(opened.domain, domain)  # type: ignore[union-attr]


def _check_data(name: str, options: Mapping[str, Any]) -> None:
    known = data_options(name)
    for option in options:
        if option not in known:
            raise BadOption(f"{name} has no option {option!r}; {suggestion(option, known)}")


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
    known = {*SWEPT, *_protocol_names(table.protocol)}
    for row in table.lines:
        known |= set(_known_options(row, row.measure or table.measure))
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
            if protocol == _PROTOCOL and any(len(stream) > 1 for stream in table.groups.values()):
                yield f"{_PROTOCOL} takes one domain at a time: expected domains, or another protocol for groups"
            swept = {name: value} if name in _protocol_names(protocol) else {}
            wrong = _problem(check_protocol, protocol, options | swept)
            yield from (f"row {row.label!r}: {text}" if row.protocol else text for text in wrong)
            measure = row.measure or table.measure
            if name in _known_options(row, measure) and name not in {*row.options, *SWEPT}:
                wrong = _option_problems(row.method, measure, {**row.options, name: value})
                yield from (f"row {row.label!r}: {text}" for text in wrong)


def _known_options(row: RowSpec, measure: str) -> Mapping[str, Any]:
    try:
        return defaults_of(find_measurement(measure)) if measure else method_info(row.method or "source").defaults
    except BadOption:
        return {}  # reported elsewhere


def _protocol_names(protocol: str) -> Mapping[str, Any]:
    try:
        return protocol_options(protocol)
    except BadOption:
        return {}  # reported elsewhere
