"""Experiment files: tables of rows and columns, validated as a whole before anything runs."""

import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from os.path import isfile
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator

from domainadaptor.errors import AdaptationError, BadFile, BadOption
from domainadaptor.lab.data.domains import DomainDataset
from domainadaptor.lab.data.registry import data_options
from domainadaptor.lab.evaluation.protocols import PROTOCOLS, protocol_options
from domainadaptor.lab.experiments.analyses import measurements
from domainadaptor.lab.experiments.file_model import FileModel, Texts, sentence
from domainadaptor.lab.experiments.networks import (
    LocatedNetwork,
    NetworkEntry,
    Networks,
    check_pattern,
    start_problems,
)
from domainadaptor.lab.experiments.tables import PROTOCOL, SWEPT, RowSpec, TableSpec
from domainadaptor.lab.records.plans import check_file_name
from domainadaptor.options import suggestion

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILES = Path(__file__).parent / "files"  # the experiments of the package
NETWORKS = "networks.toml"
_PLACE = re.compile(r"\(((?:Table|Figure) \w+)\)$")  # in the paper, at the end of a title
OpenDataset = Callable[[str, Mapping[str, Any]], DomainDataset]


class ExperimentFile(FileModel):
    """The content of an experiment file."""

    title: str
    about: str = ""
    minutes: Annotated[float, Field(gt=0)] | None = None  # that all runs took, one after the other
    remarks: Texts = ()
    table: Annotated[list[TableSpec], Field(min_length=1)]
    rows: Annotated[dict[str, RowSpec], Field(min_length=1)]
    networks: dict[str, NetworkEntry] = {}

    @model_validator(mode="after")
    def _join(self) -> "ExperimentFile":
        for label, row in self.rows.items():
            row._label = label
        for table in self.table:
            table._lines = tuple(self.rows[label] for label in table.rows or self.rows if label in self.rows)
        return self


_PARTS: dict[str, type[FileModel]] = {"table": TableSpec, "rows": RowSpec, "networks": NetworkEntry}


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
    minutes: float | None

    @property
    def paper(self) -> str:
        """The table or figure of the paper that it reproduces; "" if there is none."""
        return place_in_title(self.title)

    @property
    def argument(self) -> str:
        """What `domainadaptor run` calls it."""
        return self.name if self.file.parent == FILES else self.file.as_posix()


def place_in_title(title: str) -> str:
    """Return "Table 3" of a title that ends with "(Table 3)"."""
    found = _PLACE.search(title)
    return found[1] if found else ""


def experiment_files(folder: Path = FILES) -> list[Path]:
    """Return the experiment files of a folder, those of the package by default."""
    return sorted((path for path in folder.glob("*.toml") if path.name != NETWORKS), key=lambda path: path.stem)


def find_experiment(name: str) -> Path:
    """Return an experiment file, given its path, its name in the package, or its place in the paper, as "table 3"."""
    if name.endswith(".toml") or isfile(name):
        return Path(name)
    shipped = {path.stem: path for path in reversed(experiment_files())}
    known = {place_in_title(str(_toml(path).get("title"))): path for path in shipped.values()} | shipped
    wanted = re.sub(r"[\s_-]+", "", name.casefold())
    for title, path in known.items():
        if title and re.sub(r"[\s_-]+", "", title.casefold()) == wanted:
            return path
    raise BadOption(f"No experiment {name!r}; {suggestion(name, sorted(shipped))}. A file of your own ends in .toml")


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
    content, beside = _toml(path), path.parent / NETWORKS
    if beside.is_file() and isinstance(content.get("networks", {}), dict):
        content["networks"] = _toml(beside) | content.get("networks", {})
    problems = _name_problems(path.stem)
    try:
        file = ExperimentFile.model_validate(content)
    except ValidationError as error:
        problems += dict.fromkeys(sentence(d, _PARTS, ExperimentFile) for d in error.errors(include_url=False))
    else:
        networks = Networks(file.networks, runs, given or {})
        problems += _network_problems(networks)
        for number, table in enumerate(file.table, 1):
            wrong = [*_table_problems(table, file.rows, networks, views), *_data_problems(table, dataset)]
            problems += [f"table {number} ({table.title!r}): {text}" for text in dict.fromkeys(wrong)]
    if problems:
        lines = "\n".join(f"  - {problem}" for problem in problems)
        raise BadFile(f"Invalid experiment file {str(path)!r}; nothing was run:\n{lines}")
    return Experiment(
        path.stem, path, file.title, file.about.strip(), file.remarks, tuple(file.table), networks, file.minutes
    )


def _toml(path: Path) -> dict[str, Any]:
    try:
        return dict(tomllib.loads(path.read_text(encoding="utf-8-sig")))
    except OSError as error:
        why = f"{error.strerror or error}; `domainadaptor run --list` lists the experiments of the package"
        raise BadFile(f"No experiment file at {str(path)!r}: {why}") from error
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, a number too long, nested too deep
        raise BadFile(f"{str(path)!r} is not valid TOML: {error}") from error


def _name_problems(name: str) -> list[str]:
    try:
        check_file_name(name)
    except ValueError as error:
        return [f"rename the file: {error}"]
    return []


def _network_problems(networks: Networks) -> Iterator[str]:
    yield from start_problems(networks.entries)
    for name, pattern in networks.given.items():
        if name not in networks.entries:
            yield f"--checkpoint {name}=…: {suggestion(name, networks.entries)}"
        yield from _problem_of(check_pattern, pattern)


def _table_problems(
    table: TableSpec, rows: Mapping[str, RowSpec], networks: Networks, views: Collection[str] | None
) -> Iterator[str]:
    """Yield what does not fit together in a table, besides its data."""
    if bool(table.domains) == bool(table.groups):
        yield "expected either domains or groups of them"
    yield from (f"rows: there is no row {name!r}; {suggestion(name, rows)}" for name in table.rows if name not in rows)
    several = [name for name, stream in table.groups.items() if len(stream) > 1]
    for name in dict.fromkeys(name for name in (table.network, *(row.network for row in table.lines)) if name):
        if name not in networks.entries:
            yield f"there is no network {name!r}; {suggestion(name, networks.entries)}"
        elif several and networks.entry(name).depends_on_target():
            yield f"{name!r} is a different network for each target, so it cannot adapt to the group {several[0]!r}"
    measured = list(dict.fromkeys(row.measure for row in table.lines))
    if table.show and views is not None and table.show not in {*views, *measurements()}:
        yield f"show = {table.show!r} is not known; {suggestion(table.show, views)}"
    elif len(measured) > 1:
        yield f"expected rows of one measurement, or of none; got {', '.join(map(repr, measured))}"
    elif measured and (measured[0] or table.show in measurements()) and table.show not in ("", measured[0]):
        yield f"show = {table.show!r} does not fit measure = {measured[0]!r}: a measurement is shown by its own name"
    known = {*SWEPT}.union(
        *(protocol_options(p) for p in PROTOCOLS if p == table.protocol), *(r.defaults for r in table.lines)
    )
    if table.sweep and table.sweep.option not in known:
        option = table.sweep.option
        yield f"sweep over {option!r}, which none of the rows has; {suggestion(option, sorted(known))}"
        return
    for row, column in product(table.lines, table.columns()):
        wrong = _problem_of(table.runs, row, column, 0, lambda name, *_: LocatedNetwork(name, name))
        yield from (f"row {row.label!r}: {text}" for text in wrong)
        if several and (row.protocol or table.protocol) == PROTOCOL:
            yield f"{PROTOCOL} takes one domain at a time: expected domains, or another protocol for groups"


def _data_problems(table: TableSpec, dataset: OpenDataset | None) -> Iterator[str]:
    """Check the data set, its options, and its domains if it is available."""
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
        yield from _problem_of(opened.domain, domain)


def _problem_of(check: Callable[..., object], *values: Any) -> list[str]:
    """Return why a check fails; nothing if it does not."""
    try:
        check(*values)
    except BadOption as error:
        return [str(error)]
    return []
