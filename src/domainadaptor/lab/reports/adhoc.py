"""A plan for records that no experiment planned: what `evaluate --output` wrote."""

from collections.abc import Iterable, Sequence

from domainadaptor.lab.records.plans import Plan, PlannedRow, PlannedRun, PlannedTable
from domainadaptor.lab.reports.selection import AnyRecord

NAME = "evaluations"


def adhoc_plan(records: Iterable[AnyRecord], plans: Sequence[Plan]) -> Plan | None:
    """Return a plan for records that no plan has: one table per network, data and protocol; None without such.

    Rows are methods with their options, columns are domains.
    """
    planned = {run.id for plan in plans for table in plan.tables for run in table.runs()}
    tables: dict[str, list[AnyRecord]] = {}
    for record in sorted(records, key=lambda found: (found.finished, found.id)):
        if record.id not in planned:
            tables.setdefault(_key(record), []).append(record)
    if not tables or NAME in {plan.name for plan in plans}:
        return None
    about = "Runs that `domainadaptor evaluate --output` recorded."
    return Plan(name=NAME, title="Evaluations", about=about, tables=tuple(_table(own) for own in tables.values()))


def _key(record: AnyRecord) -> str:
    """Tell networks apart by their weights: others may have the same name, and must not be averaged like seeds."""
    shared = record.run.model_dump(
        exclude={"checkpoint", "domains", "method", "options", "seed", "sources", "validation"}
    )
    return repr((record.run.checkpoint.sha256, shared))


def _table(records: Sequence[AnyRecord]) -> PlannedTable:
    run = records[0].run
    columns = tuple(dict.fromkeys("+".join(record.run.domains) for record in records))
    rows: dict[str, dict[str, list[tuple[PlannedRun, ...]]]] = {}
    for record in records:
        planned = PlannedRun(id=record.id, command=record.command)
        rows.setdefault(_label(record), {}).setdefault("+".join(record.run.domains), []).append((planned,))
    images = "all images" if run.images is None else f"{run.images} images per domain"
    options = "".join(f", {name} {value}" for name, value in run.protocol_options.items())
    return PlannedTable(
        title=f"{run.checkpoint.name} on {run.dataset}: {run.measure or f'{run.protocol}{options}'}",
        sample=f"{images}, batches of {run.batch_size}",
        show=run.measure or ("accuracy" if run.protocol == "leave-one-out" else "segments"),
        columns=columns,
        mean=len(columns) > 1,
        rows=tuple(
            PlannedRow(label=label, cells={column: tuple(found) for column, found in cells.items()})
            for label, cells in rows.items()
        ),
    )


def _label(record: AnyRecord) -> str:
    options = "".join(f", {name} {value}" for name, value in record.run.options.items())
    return f"{record.run.measure or record.run.method}{options}"
