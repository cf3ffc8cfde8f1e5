"""Notes that a careful reader needs below a table, derived from its records."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from domainadaptor.lab.records.runs import EvaluationRecord
from domainadaptor.lab.reports.counts import accuracy, domains, error_of_mean, share_images, standard_error
from domainadaptor.lab.reports.numbers import number, signed
from domainadaptor.lab.reports.paper import is_in_paper, paper_value
from domainadaptor.lab.reports.selection import AnyRecord, TableRecords
from domainadaptor.lab.reports.tables import MEAN, estimates, number_rows

_LISTED = 6  # things in a sentence
_PLACES = 3  # columns in which a method does harm, until only the worst is named


def caveats(table: TableRecords[Any]) -> list[str]:
    """Return sentences in plain text."""
    rules: list[Callable[[Any], Iterator[str]]] = [_incomplete]
    if table.kind == "evaluation":
        rules += [_worse, _gains, _uncertainty] if table.layout.show != "alpha" else []
        rules += [_cautions, _fallbacks, _skipped]
    rules += [_other_network, _weights, _versions]
    return [sentence for rule in rules for sentence in rule(table)]


def _incomplete(table: TableRecords[AnyRecord]) -> Iterator[str]:
    problems = [table.problem(run) for run in table.layout.runs()]
    done, waiting = problems.count(None), problems.count("")
    failed = len(problems) - done - waiting
    if failed or waiting:
        parts = [f"{count} {word}" for count, word in ((failed, "failed"), (waiting, "not run yet")) if count]
        yield f"Incomplete: {done} of {len(problems)} runs are done, {' and '.join(parts)}."
    cells: dict[str, dict[str, None]] = {}
    for gap in table.gaps():
        if gap.reason:
            cells.setdefault(gap.reason.rstrip("."), {})[f"{gap.row} on {gap.column}"] = None
    for reason, own in cells.items():
        first, *others = own
        more = f" and {len(others)} more cell{'' if len(others) == 1 else 's'}" if others else ""
        yield f"No number for {first}{more}: {reason}."


def _worse(table: TableRecords[EvaluationRecord]) -> Iterator[str]:
    """Name rows that end below the source model on the same images."""
    columns = table.layout.columns
    ours = estimates(number_rows(table, accuracy), columns)
    source = estimates(number_rows(table, partial(accuracy, of="source")), columns)
    texts = []
    for at, row in enumerate(table.layout.rows):
        places = []
        for column in columns:
            found, base = ours.get((at, column)), source.get((at, column))
            if found and base and base.mean - found.mean > 1e-9:
                text = f"{column} ({number(found.mean)}, source model {number(base.mean)})"
                places.append((base.mean - found.mean, text))
        where = ", ".join(text for _, text in places)
        if len(places) > _PLACES:
            where = f"{len(places)} of {len(columns)} columns, most on {max(places)[1]}"
        texts += [f"{row.label} on {where}"] if where else []
    if texts:
        yield f"Worse than the source model: {'; '.join(texts)}."


def _gains(table: TableRecords[EvaluationRecord]) -> Iterator[str]:
    """Compare gains over the same source models with the paper's, which is possible where accuracies differ."""
    plan = table.layout
    column = MEAN if plan.mean else plan.columns[0] if len(plan.columns) == 1 else ""
    if not column or not plan.paper:
        return
    runs = [[record.run for record in table.of_row(row)] for row in plan.rows]
    networks = [frozenset(run.checkpoint.sha256 for run in own) for own in runs]
    sources = [at for at, own in enumerate(runs) if {run.method for run in own} == {"source"}]
    bases = {networks[at]: at for at in reversed(sources)}
    ours = estimates(number_rows(table, accuracy), plan.columns)
    gains: dict[str, list[str]] = {}
    for at, row in enumerate(plan.rows):
        base = bases.get(networks[at], at)
        reached, start = ours.get((at, MEAN)), ours.get((base, MEAN))
        theirs, begun = (paper_value(plan.paper, plan.rows[place].paper, column) for place in (at, base))
        if base != at and reached and start and theirs and begun:
            text = f"{row.label} {signed(reached.mean - start.mean)} (paper {signed(theirs.mean - begun.mean)})"
            gains.setdefault(plan.rows[base].label, []).append(text)
    for label, texts in gains.items():
        yield f"Gain over {label}, {column}: {', '.join(texts)}."


def _uncertainty(table: TableRecords[EvaluationRecord]) -> Iterator[str]:
    """State the standard error that the choice of test images causes, for tables of one seed."""
    rows = [list(table.cells(row).values()) for row in table.layout.rows]
    errors = [[error for cell in cells if (error := standard_error(cell.records)) is not None] for cells in rows]
    errors = [own for own in errors if own]
    if not errors or any(cell.expected > 1 for cells in rows for cell in cells):
        return
    single = statistics.median(error for own in errors for error in own)
    shared = share_images(table.all_records())
    complete = [own for own in errors if len(own) == len(table.layout.columns)]
    means = [error_of_mean(own, shared) for own in complete]
    mean = ""
    if table.layout.mean and means:
        mean = f", and that of a mean {'at most' if shared else 'about'} {number(statistics.median(means))}"
    yield (
        f"One seed: the standard error from the choice of test images is about {number(single)} points per number"
        f"{mean}; differences between rows, which share their images, are somewhat more certain."
    )
    if shared and (mean or any(len(domains(cell.records)) > 1 for cells in rows for cell in cells)):
        yield "All domains show the same images, so a mean over them is hardly more certain than one of them."


def _cautions(table: TableRecords[AnyRecord]) -> Iterator[str]:
    yield from dict.fromkeys(_sentence(text) for record in table.all_records() for text in record.cautions)


def _fallbacks(table: TableRecords[EvaluationRecord]) -> Iterator[str]:
    for row in table.layout.rows:
        records = table.of_row(row)
        if batches := sum(record.fell_back for record in records):
            notes = list(dict.fromkeys(note.partition(":")[0] for record in records for note in record.notes))
            yield f"{row.label}: the source model answered {batches} batches{f': {_some(notes)}' if notes else ''}."


def _skipped(table: TableRecords[EvaluationRecord]) -> Iterator[str]:
    files = list(dict.fromkeys(name for record in table.all_records() for name in record.skipped))
    if files:
        yield f"Unreadable images, not counted ({len(files)}): {_some(files)}."


def _other_network(table: TableRecords[AnyRecord]) -> Iterator[str]:
    paper = table.layout.paper
    known = [record.run.checkpoint for record in table.all_records() if record.run.checkpoint.network]
    used = dict.fromkeys(f"{(c.network or '').rpartition(':')[2]} at {c.size}x{c.size}" for c in known)
    if not paper or not is_in_paper(paper):
        return
    if not all(name.startswith(f"{paper.backbone.partition(' ')[0]} at 224") for name in used):
        measured = table.kind != "evaluation"
        compare = "the order of columns or layers" if measured else "the order of methods and their gains"
        yield (
            f"The paper's numbers are for {paper.backbone} at 224x224 on full test sets, ours for {_some(list(used))} "
            f"on the sample named above: compare {compare}, not the values."
        )


def _weights(table: TableRecords[AnyRecord]) -> Iterator[str]:
    notes = dict.fromkeys(record.run.checkpoint.note for record in table.all_records())
    yield from (f"About the networks: {_sentence(note)}" for note in notes if note)


def _versions(table: TableRecords[AnyRecord]) -> Iterator[str]:
    found: dict[str, set[str]] = {}
    for run in (record.run for record in table.all_records()):
        found.setdefault(f"{run.dataset} {sorted(run.data_options.items())}", set()).add(run.data)
    for key, versions in found.items():
        if len(versions) > 1:
            yield f"The records use {len(versions)} different versions of the data set {key.split()[0]}."


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more
