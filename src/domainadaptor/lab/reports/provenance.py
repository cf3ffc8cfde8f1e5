"""How the numbers of a table were obtained."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from domainadaptor.lab.reports.cells import Record
from domainadaptor.lab.reports.views.shown import Ask


@dataclass(frozen=True)
class Origin:
    """Facts with their values, what each method was given, and commands."""

    facts: tuple[tuple[str, str], ...]
    methods: tuple[tuple[str, str], ...]  # row -> method and options
    checkpoints: tuple[tuple[str, str], ...]  # what it is -> the command that makes it
    commands: tuple[str, ...]  # one a record


def origin(ask: Ask) -> Origin:
    """Everything that the records of a table say about themselves."""
    records = ask.all_records()
    runs = [record["run"] for record in records]
    counted = sum(sum(record.get("images", {}).values()) for record in records)
    facts = [
        ("sample", ask.table.sample),
        ("data", _all(_data(run) for run in runs)),
        ("protocol", _all(_with(run.get("protocol"), run.get("protocol_options")) for run in runs)),
        ("measurement", _all(run.get("measure") for run in runs)),
        ("batch size", _all(run.get("batch_size") for run in runs) if counted or not runs else ""),
        ("images of a domain", _all(_limit(run) for run in runs) if counted or not runs else ""),
        ("seeds of training", _all(run.get("seed") for run in runs)),
        ("orders of the images", _all(run.get("order") for run in runs)),
        ("preprocessing", _all(_preprocessing(record) for record in records)),
        ("images counted", f"{counted:,}" if counted else ""),  # measurements count none
        ("packages", _all(_packages(record) for record in records)),
        ("machine", _all(_machine(record) for record in records)),
        ("finished", _span(sorted(str(record["finished"]) for record in records if record.get("finished")))),
        ("records", f"{len(records)}"),
    ]
    methods = [(row.label, _all(_method(record) for record in ask.records(row))) for row in ask.table.rows]
    checkpoints = {_checkpoint(run["checkpoint"]): str(run["checkpoint"].get("command") or "") for run in runs
                   if run.get("checkpoint")}  # fmt: skip
    return Origin(
        tuple((name, value) for name, value in facts if value),
        tuple((label, value) for label, value in methods if value),
        tuple(sorted(checkpoints.items())),
        tuple(dict.fromkeys(str(record["command"]) for record in records if record.get("command"))),
    )


def _method(record: Record) -> str:
    """With what it was given, and what it took because nobody said otherwise."""
    run = record["run"]
    given = run.get("options", {})
    rest = {k: value for k, value in record.get("defaults", {}).items() if k not in given and value is not None}
    said = _with(run.get("method") or run.get("measure"), run.get("options"))
    return f"{said}, otherwise {_options(rest)}" if rest else said


def _preprocessing(record: Record) -> str:
    """How an image became the network's input."""
    known = record.get("preprocessing", {})
    if not known.get("size"):
        return ""
    sides = "both sides" if known.get("squash") else "shorter side"
    mean, deviation = (" ".join(map(str, known.get(name, ()))) for name in ("mean", "std"))
    return (
        f"{sides} to {known.get('resize')} ({known.get('interpolation')}), center crop {known['size']}, mean {mean}, "
        f"deviation {deviation}"
    )


def _checkpoint(known: Mapping[str, Any]) -> str:
    parts = [
        str(known.get("name") or "network"),
        f"{known['network']} at {known['size']}x{known['size']}" if known.get("network") and known.get("size") else "",
        f"trained on {', '.join(map(str, known['sources']))}" if known.get("sources") else "",
        f"seed {known['seed']}" if known.get("seed") is not None else "",
        f"sha256 {str(known['sha256'])[:12]}" if known.get("sha256") else "",
        str(known.get("note") or ""),
    ]
    return "; ".join(part for part in parts if part)


def _data(run: Mapping[str, Any]) -> str:
    mark = f", fingerprint {run['data']}" if run.get("data") else ""
    return _with(run.get("dataset"), run.get("data_options")) + mark


def _limit(run: Mapping[str, Any]) -> str:
    return "all" if run.get("images") is None else f"at most {run['images']}"


def _packages(record: Record) -> str:
    known = record.get("environment", {})
    named = ("domainadaptor", "commit", "torch", "python")
    return ", ".join(f"{name} {known[name]}" for name in named if known.get(name))


def _machine(record: Record) -> str:
    known = record.get("environment", {})
    words = [str(known[name]) for name in ("processor", "machine", "device") if known.get(name)]
    return ", ".join([*words, *([_threads(known["threads"])] if known.get("threads") else [])])


def _threads(count: Any) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _with(name: Any, options: Mapping[str, Any] | None) -> str:
    if not name:
        return ""
    said = _options(options or {})
    return f"{name} ({said})" if said else str(name)


def _options(options: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{key} {value if isinstance(value, str) else json.dumps(value)}" for key, value in options.items()
    )


def _all(values: Iterable[Any]) -> str:
    """Each value once, in order."""
    known = [value for value in dict.fromkeys(values) if value not in (None, "")]
    numbers = all(isinstance(value, int | float) for value in known)
    return ", ".join(map(str, sorted(known) if numbers else known)) if numbers else "; ".join(map(str, known))


def _span(times: Sequence[str]) -> str:
    return "" if not times else times[0] if times[0] == times[-1] else f"{times[0]} to {times[-1]}"
