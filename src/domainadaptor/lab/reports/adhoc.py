"""A layout for records that no experiment planned: what `evaluate --output` keeps."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from domainadaptor.lab.reports.plans import Plan, RowPlan, TablePlan, Wanted

NAME = "evaluations"
_SHARED = (
    "dataset", "data_options", "data", "measure", "protocol", "protocol_options", "batch_size", "images", "order"
)  # fmt: skip


def loose_plan(records: Mapping[str, Mapping[str, Any]], plans: Sequence[Plan]) -> Plan | None:
    """Those that no plan has, a table for each network and protocol or measurement; None if plans have them all.

    Methods with their options are rows, domains are columns.
    """
    planned = {wanted.id for plan in plans for table in plan.tables for wanted in table.runs()}
    tables: dict[str, list[Mapping[str, Any]]] = {}
    for record in sorted(records.values(), key=lambda found: (str(found.get("finished", "")), str(found["id"]))):
        if record["id"] not in planned:
            key = [record["run"].get(name) for name in _SHARED] + [_network(record)]
            tables.setdefault(repr(key), []).append(record)
    if not tables or NAME in {plan.name for plan in plans}:
        return None
    return Plan(NAME, "Evaluations", "What `domainadaptor evaluate --output` kept.", "", "", (),
                tuple(_table(own) for own in tables.values()))  # fmt: skip


def _network(record: Mapping[str, Any]) -> str:
    """By its weights: other networks may have the same name, and must not be averaged like seeds."""
    known = record["run"].get("checkpoint", {})
    return str(known.get("sha256") or known.get("name"))


def _name(record: Mapping[str, Any]) -> str:
    """The network as it was typed."""
    words = shlex.split(str(record.get("command", "")))
    return words[2] if words[:2] == ["domainadaptor", "evaluate"] and len(words) > 2 else "a network"


def _table(records: Sequence[Mapping[str, Any]]) -> TablePlan:
    run = records[0]["run"]
    columns = dict.fromkeys("+".join(record["run"]["domains"]) for record in records)
    rows: dict[str, dict[str, list[tuple[Wanted, ...]]]] = {}
    for record in records:
        cells = rows.setdefault(_label(record["run"]), {})
        wanted = Wanted(record["id"], str(record.get("command", "")))
        cells.setdefault("+".join(record["run"]["domains"]), []).append((wanted,))
    images = "all images" if run.get("images") is None else f"{run['images']} seeded images a domain"
    options = "".join(f", {name} {value}" for name, value in run.get("protocol_options", {}).items())
    what = run.get("measure") or f"{run['protocol']}{options}"
    return TablePlan(
        f"{_name(records[0])} on {run['dataset']}: {what}",
        f"{images}, batches of {run['batch_size']}" if run.get("batch_size") else images,
        run.get("measure") or ("accuracy" if run["protocol"] == "leave-one-out" else "segments"),
        "method",
        tuple(columns),
        len(columns) > 1,
        None,
        tuple(
            RowPlan(label, "", None, "after", {column: tuple(found) for column, found in cells.items()})
            for label, cells in rows.items()
        ),
    )


def _label(run: Mapping[str, Any]) -> str:
    options = ", ".join(f"{name} {value}" for name, value in run.get("options", {}).items())
    what = run.get("measure") or run["method"]
    return f"{what}, {options}" if options else str(what)
