"""How the numbers of a table were obtained."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from domainadaptor.lab.records.runs import CheckpointInfo, EvaluationRecord, RunRecord
from domainadaptor.lab.reports.selection import AnyRecord, TableRecords


class TableProvenance(NamedTuple):
    """Settings, methods, networks and commands."""

    facts: tuple[tuple[str, str], ...]
    methods: tuple[tuple[str, str], ...]  # row -> method and options
    networks: tuple[tuple[str, str], ...]  # description -> the command that trains it
    commands: tuple[str, ...]  # one per record


def provenance(table: TableRecords[AnyRecord]) -> TableProvenance:
    """Collect what the records of a table know about themselves."""
    records = table.all_records()
    runs = [record.run for record in records]
    counted = sum(sum(record.images.values()) for record in records if isinstance(record, EvaluationRecord))
    times = sorted(record.finished for record in records)
    data = (_with_options(run.dataset, run.data_options) + (run.data and f", fingerprint {run.data}") for run in runs)
    facts = {
        "data": _all(data),
        "protocol": _all(_with_options(run.protocol, run.protocol_options) for run in runs),
        "measurement": _all(run.measure for run in runs),
        "batch size": _all(run.batch_size for run in runs) if counted else "",
        "images per domain": _all(f"at most {run.images}" if run.images else "all" for run in runs) if counted else "",
        "training seeds": _all(run.seed for run in runs),
        "image order seeds": _all(run.order for run in runs),
        "preprocessing": _all(_preprocessing(record) for record in records),
        "images counted": f"{counted:,}" if counted else "",  # measurements count none
        "packages": _all(_packages(record) for record in records),
        "machine": _all(_machine(record) for record in records),
        "finished": " to ".join(dict.fromkeys((times[0], times[-1]))) if times else "",
        "records": str(len(records)) if records else "",
    }
    methods = {row.label: _all(_method(record) for record in table.of_row(row)) for row in table.layout.rows}
    networks = {_network(run.checkpoint): run.checkpoint.command for run in runs}
    return TableProvenance(
        tuple((name, value) for name, value in facts.items() if value),
        tuple((label, value) for label, value in methods.items() if value),
        tuple(sorted(networks.items())),
        tuple(dict.fromkeys(record.command for record in records if record.command)),
    )


def _method(record: RunRecord) -> str:
    """Name the method, its options, and the defaults of the others."""
    run = record.run
    rest = {name: value for name, value in record.defaults.items() if name not in run.options and value is not None}
    return _with_options(run.method or run.measure, run.options) + (f", defaults {_options(rest)}" if rest else "")


def _preprocessing(record: RunRecord) -> str:
    known = record.preprocessing
    if known is None:
        return ""
    mean, deviation = (" ".join(map(str, values)) for values in (known.mean, known.std))
    side = "both sides" if known.squash else "shorter side"
    size = f"to {known.resize} ({known.interpolation}), center crop {known.size}"
    return f"{side} {size}, mean {mean}, deviation {deviation}"


def _network(known: CheckpointInfo) -> str:
    parts = (
        known.name or "network",
        f"{known.network} at {known.size}x{known.size}" if known.network and known.size else "",
        f"trained on {', '.join(known.sources)}" if known.sources else "",
        f"seed {known.seed}",
        f"sha256 {known.sha256[:12]}" if known.sha256 else "",
        known.note,
    )
    return "; ".join(filter(None, parts))


def _packages(record: RunRecord) -> str:
    known = record.environment
    commit = f", commit {known.commit}" if known.commit else ""
    return f"domainadaptor {known.domainadaptor}{commit}, torch {known.torch}, python {known.python}"


def _machine(record: RunRecord) -> str:
    known = record.environment
    threads = "1 thread" if known.threads == 1 else f"{known.threads} threads"
    return ", ".join(filter(None, (known.processor, known.machine, known.device, threads)))


def _with_options(name: str, options: Mapping[str, Any]) -> str:
    return f"{name} ({_options(options)})" if name and options else name


def _options(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{k} {value if isinstance(value, str) else json.dumps(value)}" for k, value in options.items())


def _all(values: Iterable[str | int]) -> str:
    """Return each value once; numbers in order."""
    known = [value for value in dict.fromkeys(values) if value != ""]
    if all(isinstance(value, int) for value in known):
        return ", ".join(map(str, sorted(known)))
    return "; ".join(map(str, known))
