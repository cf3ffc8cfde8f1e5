"""A plan for records that no experiment planned: what `evaluate --output` wrote."""

from collections.abc import Iterable, Sequence

from domainadaptor.lab.records.plans import Plan, PlannedRow, PlannedRun, PlannedTable
from domainadaptor.lab.reports.selection import AnyRecord

NAME = "evaluations"
_NOT_THE_TABLE = {"checkpoint", "domains", "method", "options", "seed", "sources", "validation"}


def adhoc_plan(records: Iterable[AnyRecord], plans: Sequence[Plan]) -> Plan | None:
    """Return a plan for records that no plan has: one table per network, data and protocol; None without such.

    Rows are methods with their options, columns are domains.
    """
    planned = {run.id for plan in plans for table in plan.tables for run in table.runs()}
    tables: dict[str, list[AnyRecord]] = {}
    for record in sorted(records, key=lambda found: (found.finished, found.id)):
        if record.id not in planned:
            # Networks of one name may have other weights, and must not be averaged like seeds.
            key = (record.run.checkpoint.sha256, record.run.model_dump(exclude=_NOT_THE_TABLE))
            tables.setdefault(repr(key), []).append(record)
    if not tables or NAME in {plan.name for plan in plans}:
        return None
    about = "Runs that `domainadaptor evaluate --output` recorded."
    return Plan(name=NAME, title="Evaluations", about=about, tables=tuple(_table(own) for own in tables.values()))


def _table(records: Sequence[AnyRecord]) -> PlannedTable:
    run = records[0].run
    rows: dict[str, dict[str, tuple[tuple[PlannedRun, ...], ...]]] = {}
    for record in records:
        options = "".join(f", {name} {value}" for name, value in record.run.options.items())
        row, column = rows.setdefault(f"{record.run.measure or record.run.method}{options}", {}), _column(record)
        row[column] = (*row.get(column, ()), (PlannedRun(id=record.id, command=record.command),))
    columns = tuple(dict.fromkeys(map(_column, records)))
    images = "all images" if run.images is None else f"{run.images} images per domain"
    options = "".join(f", {name} {value}" for name, value in run.protocol_options.items())
    return PlannedTable(
        title=f"{run.checkpoint.name} on {run.dataset}: {run.measure or f'{run.protocol}{options}'}",
        sample=f"{images}, batches of {run.batch_size}",
        show=run.measure or ("accuracy" if run.protocol == "leave-one-out" else "segments"),
        columns=columns,
        mean=len(columns) > 1,
        rows=tuple(PlannedRow(label=label, cells=cells) for label, cells in rows.items()),
    )


def _column(record: AnyRecord) -> str:
    return "+".join(record.run.domains)
