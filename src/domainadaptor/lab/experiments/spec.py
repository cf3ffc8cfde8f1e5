"""Experiment files: tables of rows and columns, checked whole before anything runs."""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import domainadaptor
from domainadaptor.errors import AdaptationError, BadFile, BadOption
from domainadaptor.lab.data.domains import DomainDataset
from domainadaptor.lab.data.registry import data_options
from domainadaptor.lab.evaluation.protocols import check_protocol, protocol_options
from domainadaptor.lab.experiments import kinds
from domainadaptor.lab.experiments.analyses import MEASURES
from domainadaptor.lab.experiments.networks import Networks, pattern_mistake, read_plans
from domainadaptor.lab.experiments.table import SWEPT, Experiment, Row, TableSpec
from domainadaptor.lab.experiments.trial import complaint, wrong_options
from domainadaptor.options import coerce_options, suggestion

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NETWORKS = "networks.toml"
SHOWS = (
    "accuracy",
    "accuracy-curve",
    "time",
    "price",
    "alpha",
    "details",
    "segments",
    "statistics-distances",
    "statistics-variance",
    "classifier-norms",
    "loss-curves",
)
_TOP = {
    "title": kinds.TEXT,
    "about": kinds.TEXT,
    "remarks": kinds.SENTENCES,
    "table": kinds.TABLES,
    "rows": kinds.TABLE,
    "networks": kinds.TABLE,
}
_TABLE = {
    "title": kinds.TEXT,
    "dataset": kinds.TEXT,
    "data_options": kinds.OPTIONS,
    "network": kinds.TEXT,
    "domains": kinds.NAMES,
    "groups": kinds.GROUPS,
    "sweep": kinds.TABLE,
    "seeds": kinds.SEEDS,
    "images": kinds.COUNT,
    "batch_size": kinds.COUNT,
    "order": kinds.SEED,
    "protocol": kinds.TEXT,
    "protocol_options": kinds.OPTIONS,
    "sources": kinds.NAMES,
    "show": kinds.TEXT,
    "mean": kinds.FLAG,
    "corner": kinds.TEXT,
    "rows": kinds.NAMES,
    "measure": kinds.TEXT,
    "paper": kinds.PAPER_TABLE,
}
_ROW = {
    "method": kinds.TEXT,
    "network": kinds.TEXT,
    "paper": kinds.PAPER,
    "group": kinds.TEXT,
    "images": kinds.COUNT,
    "batch_size": kinds.COUNT,
    "protocol": kinds.TEXT,
    "protocol_options": kinds.OPTIONS,
    "measure": kinds.TEXT,
}
_NO_ROW = Row("", "source", {}, {})
OpenDataset = Callable[[str, Mapping[str, Any]], DomainDataset]
_FILES = ("index", "training")  # of a report, which calls its files as experiments are called


def read_experiment(
    path: Path, runs: Path, given: Mapping[str, str] | None = None, dataset: OpenDataset | None = None
) -> Experiment:
    """An experiment from its file; the networks that it names are in networks.toml beside it.

    Args:
        path: The file.
        runs: Where trained networks lie.
        given: Names of networks -> a user's own checkpoints, with {target} and {seed} where there are several.
        dataset: Opens a data set, which is asked for the domains that are named, where it is there.

    Raises:
        BadFile: It is missing, or anything in it is wrong: all that is wrong is said at once.
    """
    content = _toml(path)
    mistakes = kinds.wrong_kinds(content, _TOP)
    mistakes += [f"{key!r} is missing" for key in ("title", "table") if key not in content]
    if not re.fullmatch(r"[\w-][\w.-]*", path.stem) or path.stem in _FILES:
        mistakes.append(
            f"the file is called {path.name!r}: expected letters, digits and hyphens, and neither of {_FILES}, since "
            "reports call their files like that"
        )
    said = {key: value for key, value in content.items() if key in _TOP and kinds.fits(value, _TOP[key])}
    beside = path.parent / NETWORKS
    entries = (_toml(beside) if beside.is_file() else {}) | said.get("networks", {})
    plans = read_plans(entries, mistakes)
    for name, pattern in (given or {}).items():
        if name not in plans:
            mistakes.append(f"--checkpoint {name}=…: {suggestion(name, plans)}")
        elif wrong := pattern_mistake(pattern):
            mistakes.append(f"--checkpoint {name}=…: {wrong}")
    rows = {
        label: made
        for label, entry in said.get("rows", {}).items()
        if (made := _row(label, entry, mistakes)) is not None
    }
    networks = Networks(plans, runs, given or {})
    tables = []
    for number, entry in enumerate(said.get("table", []), 1):
        found = _table(number, entry, rows, set(said.get("rows", {})), networks, set(entries), mistakes, dataset)
        tables += [] if found is None else [found]
    if mistakes:
        raise refusal(path, mistakes)
    return Experiment(
        path.stem,
        path,
        content["title"],
        content.get("about", "").strip(),
        tuple(content.get("remarks", ())),
        tuple(tables),
        networks,
    )


def refusal(path: Path, mistakes: Sequence[str]) -> BadFile:
    """The error that names all mistakes of a file."""
    lines = "\n".join(f"  - {mistake}" for mistake in mistakes)
    return BadFile(f"{str(path)!r} cannot be run, nothing was:\n{lines}")


def _toml(path: Path) -> dict[str, Any]:
    try:
        return dict(tomllib.loads(path.read_text(encoding="utf-8-sig")))
    except OSError as error:
        raise BadFile(
            f"no experiment at {str(path)!r} ({error.strerror or error}); `domainadaptor run --list` shows those in "
            "the folder experiments"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadFile(f"{str(path)!r} is no TOML: {error}") from error


def _row(label: str, entry: Any, mistakes: list[str]) -> Row | None:
    where = f"row {label!r}"
    if not isinstance(entry, dict):
        mistakes.append(f"{where}: expected a table, got {entry!r}")
        return None
    options = {key: value for key, value in entry.items() if key not in _ROW}
    wrong = kinds.wrong_kinds(entry, _ROW | dict.fromkeys(options, kinds.PLAIN))
    measure = entry.get("measure", "")
    method = entry.get("method", "source" if measure else "")
    if not method:
        wrong.append(f"it has no method; {suggestion('', domainadaptor.list_methods())}")
    elif isinstance(method, str) and isinstance(measure, str) and kinds.fits(options, kinds.OPTIONS):
        wrong += _wrong_measure(measure, options) if measure else wrong_options(method, options)
    if wrong:
        mistakes += [f"{where}: {text}" for text in wrong]
        return None
    settings = {key: entry[key] for key in ("images", "batch_size", "protocol", "protocol_options") if key in entry}
    return Row(
        label,
        method,
        options,
        settings,
        entry.get("network", ""),
        entry.get("paper"),
        entry.get("group", ""),
        measure,
    )


def _table(
    number: int,
    entry: Mapping[str, Any],
    rows: Mapping[str, Row],
    labels: set[str],
    networks: Networks,
    named: set[str],
    mistakes: list[str],
    dataset: OpenDataset | None,
) -> TableSpec | None:
    where = f"table {number}" + (f" ({entry['title']!r})" if "title" in entry else "")
    before = len(mistakes)
    say = lambda text: mistakes.append(f"{where}: {text}")  # noqa: E731
    for key in ("title", "dataset", "network"):
        if key not in entry:
            say(f"{key!r} is missing")
    for wrong in kinds.wrong_kinds(entry, _TABLE):
        say(wrong)
    if ("domains" in entry) == ("groups" in entry):
        say("expected domains, or groups of them")
    # The rest of a table is looked at too, so that all mistakes are said at once.
    entry = {key: value for key, value in entry.items() if key in _TABLE and kinds.fits(value, _TABLE[key])}
    for label in entry.get("rows", ()):
        if label not in labels:
            say(f"there is no row {label!r}; {suggestion(label, labels)}")
    if not labels:
        say("expected rows, each under [rows.NAME]")
    chosen = [rows[label] for label in entry.get("rows", rows) if label in rows]
    crowds = [name for name, stream in entry.get("groups", {}).items() if len(stream) > 1]
    own = [entry["network"]] if "network" in entry else []
    for name in dict.fromkeys([*own, *(row.network for row in chosen if row.network)]):
        if name not in named:
            say(f"there is no network {name!r}; {suggestion(name, sorted(named))}")
        elif crowds and name in networks.plans and networks.plan(name).depends_on_target():
            say(f"{name!r} is another network for each target, so it cannot meet the group {crowds[0]!r} of several")
    _check_data(entry, say, dataset)
    show = entry.get("show", "accuracy")
    if show not in SHOWS:
        say(f"show = {show!r}; {suggestion(show, SHOWS)}")
    elif chosen:
        entry |= {"show": show} if (show := _shown(entry, chosen, say)) else {}
    if entry.get("measure"):
        for row in chosen or [_NO_ROW]:
            for text in [] if row.measure else _wrong_measure(entry["measure"], row.options):
                say(f"row {row.label!r}: {text}" if row.options else text)
    sweep = _sweep(entry.get("sweep"), entry.get("protocol", "leave-one-out"), chosen, say)
    for text in dict.fromkeys(_wrong_settings(entry, chosen, sweep)):
        say(text)
    if len(mistakes) > before:
        return None
    groups = {name: tuple(domains) for name, domains in entry.get("groups", {}).items()}
    given = {key: value for key, value in entry.items() if key not in ("rows", "sweep", "groups")}
    given |= {key: tuple(given[key]) for key in ("domains", "seeds", "sources") if key in given}
    return TableSpec(**{"domains": ()} | given, rows=tuple(chosen), sweep=sweep, groups=groups)


def _sweep(
    entry: Any, protocol: str, rows: Sequence[Row], say: Callable[[str], None]
) -> tuple[str, tuple[Any, ...]] | None:
    if entry is None:
        return None
    if set(entry) != {"option", "values"} or not isinstance(entry["values"], list) or not entry["values"]:
        say(f"sweep = {entry!r}: expected {{option = NAME, values = [...]}}")
        return None
    name, values = entry["option"], entry["values"]
    known = {*SWEPT, *_known_options(protocol)}
    for row in rows:
        known |= set(domainadaptor.method_info(row.method).defaults)
    if name not in list(known):
        say(f"sweep over {name!r}, which none of the rows has; {suggestion(name, sorted(known))}")
        return None
    kind = kinds.COUNT if name in SWEPT else kinds.PLAIN
    for value in values:
        if not kinds.fits(value, kind):
            say(f"sweep over {name} with {value!r}: expected {kind}")
            return None
    if len(set(map(str, values))) < len(values):
        say(f"sweep over {name}: expected different values, got {values!r}")
        return None
    return name, tuple(values)


def _wrong_settings(
    entry: Mapping[str, Any], rows: Sequence[Row], sweep: tuple[str, tuple[Any, ...]] | None
) -> Iterator[str]:
    """What the protocol of the table or of a row, or the method of a row, says to its options in some column."""
    for name, value in [("", None)] if sweep is None else [(sweep[0], value) for value in sweep[1]]:
        for row in rows or [_NO_ROW]:  # of a table whose rows are wrong, the rest is looked at
            settings = {**entry, **row.settings}
            protocol = settings.get("protocol", "leave-one-out")
            if protocol == "leave-one-out" and any(len(stream) > 1 for stream in entry.get("groups", {}).values()):
                yield "leave-one-out is of one domain at a time: expected domains, or another protocol for groups"
            options = dict(settings.get("protocol_options", {}))
            if name in _known_options(protocol):
                options[name] = value
            try:
                check_protocol(protocol, options)
            except BadOption as error:
                yield f"row {row.label!r}: {error}" if "protocol" in row.settings else str(error)
            swept = (
                name in domainadaptor.method_info(row.method).defaults and name not in row.options and name not in SWEPT
            )
            if swept and (text := complaint(row.method, {**row.options, name: value})):
                yield f"row {row.label!r} with {name} = {value!r}: {text}"


def _check_data(entry: Mapping[str, Any], say: Callable[[str], None], dataset: OpenDataset | None) -> None:
    """The name of the data set, of its options, and of its domains where it is there."""
    if "dataset" not in entry:
        return
    try:
        known = data_options(entry["dataset"])
    except BadOption as error:
        say(str(error))
        return
    for name in entry.get("data_options", {}):
        if name not in known:
            say(f"{entry['dataset']} has no option {name!r}; {suggestion(name, known)}")
            return
    if dataset is None:
        return
    try:
        opened = dataset(entry["dataset"], entry.get("data_options", {}))
    except BadOption as error:
        say(str(error))
        return
    except AdaptationError:  # it is not there: its cells are missing
        return
    grouped = [domain for stream in entry.get("groups", {}).values() for domain in stream]
    for domain in dict.fromkeys([*entry.get("domains", ()), *grouped, *entry.get("sources", ())]):
        try:
            opened.domain(domain)
        except BadOption as error:
            say(str(error))


def _wrong_measure(measure: str, options: Mapping[str, Any]) -> list[str]:
    if measure not in MEASURES:
        return [f"measure = {measure!r}; {suggestion(measure, MEASURES)}"]
    try:
        coerce_options(MEASURES[measure], options, measure)
    except BadOption as error:
        return [str(error)]
    return []


def _shown(entry: Mapping[str, Any], rows: Sequence[Row], say: Callable[[str], None]) -> str:
    """How a table is shown: measurements as what they are, unless it says so itself; "" where it cannot be."""
    measured = dict.fromkeys(row.measure or entry.get("measure", "") for row in rows)
    show = entry.get("show", next(iter(measured)) or "accuracy")
    wanted = show if show in MEASURES else ""
    if wrong := [measure for measure in measured if measure != wanted and (not measure or measure in MEASURES)]:
        say(
            f"show = {show!r} of rows with measure = {wrong[0]!r}: a measurement is shown by its own name"
            if wrong[0]
            else f"show = {show!r} of rows that do not measure it: expected measure = {show!r} in the table or its rows"
        )
        return ""
    return str(show)


def _known_options(protocol: str) -> set[str]:
    try:
        return set(protocol_options(protocol))
    except BadOption:
        return set()  # said elsewhere
