"""What an honest reader would add to a table, from its records."""

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

from domainadaptor.lab.reports.cells import Cell, Record, mean_over
from domainadaptor.lab.reports.counts import accuracy, total
from domainadaptor.lab.reports.grid import number, signed
from domainadaptor.lab.reports.paper import ACCURACY, is_in_paper, paper_value
from domainadaptor.lab.reports.plans import RowPlan
from domainadaptor.lab.reports.tables import MEAN
from domainadaptor.lab.reports.views.shown import Ask

_WORLD = {  # of a record's environment: how a sentence calls it
    "domainadaptor": "version of domainadaptor",
    "torch": "version of torch",
    "python": "version of Python",
    "device": "kind of device",
    "threads": "number of threads",
    "machine": "machine",
    "processor": "processor",
}
_CORRUPTED = ("cifar10-c", "corrupted")  # data sets whose domains show the same images
_LONGEST = 6  # things in a sentence
_PLACES = 3  # where a method does harm, until only the worst is told


def remarks(ask: Ask) -> list[str]:
    """Sentences, in plain text."""
    records = ask.all_records()
    found = [*_incomplete(ask)]
    if ask.shelf.kind == "evaluation":
        if ask.table.show != "alpha":
            found += [*_below_untouched(ask), *_gains(ask), *_chance(ask)]
        found += [*_cautions(records), *_fell_back(ask), *_skipped(records)]
    return [*found, *_other_network(ask, records), *_rests_on(records), *_other_worlds(records), *_other_data(records)]


def _incomplete(ask: Ask) -> Iterator[str]:
    done, failed, waiting = ask.shelf.states(ask.table.runs())
    if failed or waiting:
        parts = ([f"{failed} failed"] if failed else []) + ([f"{waiting} not run yet"] if waiting else [])
        yield f"Not complete: {done} of {done + failed + waiting} runs are there, {' and '.join(parts)}."


def _below_untouched(ask: Ask) -> Iterator[str]:
    """Rows that end below the network that was not adapted, on the same images."""
    worse: dict[str, list[tuple[float, str]]] = {}
    for row in ask.table.rows:
        if row.value != "after":
            continue
        for column, cell in ask.cells(row).items():
            ours, plain = cell.spread(accuracy), cell.spread(lambda records: accuracy(records, "source"))
            if ours and plain and ours.mean < plain.mean - 1e-9:
                said = f"{column} ({number(ours.mean)} against {number(plain.mean)})"
                worse.setdefault(row.label, []).append((plain.mean - ours.mean, said))
    rows = []
    for label, places in worse.items():
        where = ", ".join(said for _, said in places)
        if len(places) > _PLACES:
            where = f"{len(places)} of {len(ask.table.columns)} columns, most of all on {max(places)[1]}"
        rows.append(f"{label} on {where}")
    if rows:
        yield f"Below the untouched network end: {'; '.join(rows)}."


def _chance(ask: Ask) -> Iterator[str]:
    """How much a number of one seed owes to the images that happened to be drawn."""
    rows = [cells for row in ask.table.rows if (cells := list(ask.cells(row).values()))]
    errors = [[error for cell in cells if (error := _standard_error(cell)) is not None] for cells in rows]
    errors = [own for own in errors if own]
    if not errors or any(cell.expected > 1 for cells in rows for cell in cells):
        return
    single = statistics.median(error for own in errors for error in own)
    shared = _share_images(ask.all_records())
    whole = [own for own in errors if len(own) == len(ask.table.columns)]
    means = [statistics.mean(own) if shared else math.hypot(*own) / len(own) for own in whole]
    most = "at most " if shared else ""
    mean = f", a mean by {most}{number(statistics.median(means))}" if ask.table.mean and means else ""
    yield (
        f"One seed: by the choice of images alone a number is uncertain by about {number(single)} points (one standard "
        f"error){mean}; differences between rows, which share their images, by somewhat less."
    )
    if shared and (mean or any(_domains(cell.records) > 1 for cells in rows for cell in cells)):
        yield "All domains show the same images, so that a mean over them is hardly surer than one of them."


def _share_images(records: Sequence[Record]) -> bool:
    """Whether every domain is the same images in another dress."""
    return bool(records) and all(record["run"].get("dataset") in _CORRUPTED for record in records)


def _domains(records: Sequence[Record]) -> int:
    return len({domain for record in records for domain in record.get("scores", ())})


def _standard_error(cell: Cell) -> float | None:
    """In points; what several domains show of the same images counts once."""
    images = total(cell.records, "images")
    if not images:
        return None
    share = total(cell.records, "right") / images
    different = images / _domains(cell.records) if _share_images(cell.records) else images
    return 100 * math.sqrt(share * (1 - share) / different)


def _gains(ask: Ask) -> Iterator[str]:
    """Gains over the same networks untouched beside the paper's, which can be compared where accuracies cannot."""
    table = ask.table
    column = MEAN if table.mean else table.columns[0] if len(table.columns) == 1 else None
    if column is None or not table.paper:
        return
    bases = {_networks(ask, row): row for row in reversed(table.rows) if _method(ask.records(row)) == "source"}
    said: dict[str, list[str]] = {}
    for row in table.rows:
        base = bases.get(_networks(ask, row))
        if base is None or base is row:
            continue
        ours, start = _mean(ask, row), _mean(ask, base)
        printed, theirs = (paper_value(table.paper, entry.paper, column, ACCURACY) for entry in (row, base))
        if ours is not None and start is not None and printed and theirs:
            gain = f"{row.label} {signed(ours - start)} (paper {signed(printed.value - theirs.value)})"
            said.setdefault(base.label, []).append(gain)
    for label, gains in said.items():
        yield f"Gain over {label}, {column}: {', '.join(gains)}."


def _networks(ask: Ask, row: RowPlan) -> frozenset[str]:
    known = [record["run"].get("checkpoint", {}) for record in ask.records(row)]
    return frozenset(str(checkpoint.get("sha256") or checkpoint.get("name")) for checkpoint in known)


def _mean(ask: Ask, row: RowPlan) -> float | None:
    found = mean_over(list(ask.cells(row).values()), lambda records: accuracy(records, row.value))
    return found.mean if found else None


def _fell_back(ask: Ask) -> Iterator[str]:
    for row in ask.table.rows:
        records = ask.records(row)
        batches = sum(record.get("fell_back", 0) for record in records)
        if batches:
            notes = list(dict.fromkeys(note for record in records for note in record.get("notes", [])))
            why = f": {_some(notes)}" if notes else ""
            yield f"{row.label}: {batches} batches were answered by the untouched network{why}."


def _cautions(records: Sequence[Record]) -> Iterator[str]:
    """What the numbers may not be taken for."""
    for caution in dict.fromkeys(str(text) for record in records for text in record.get("cautions", ())):
        yield f"{caution[:1].upper()}{caution[1:]}."


def _skipped(records: Sequence[Record]) -> Iterator[str]:
    files = dict.fromkeys(name for record in records for name in record.get("skipped", {}))
    if files:
        yield f"Images that could not be read and are not counted ({len(files)}): {_some(list(files))}."


def _other_network(ask: Ask, records: Sequence[Record]) -> Iterator[str]:
    paper = ask.table.paper
    used = dict.fromkeys(
        f"{c['network'].rpartition(':')[2]} at {c.get('size', '?')}x{c.get('size', '?')}"
        for record in records
        if (c := record["run"].get("checkpoint", {})).get("network")
    )
    if (
        paper
        and is_in_paper(paper)
        and used
        and not all(name.startswith(f"{paper.backbone.partition(' ')[0]} at 224") for name in used)
    ):
        measured = any("values" in record for record in records)
        compare = "the order of columns or layers" if measured else "the order of methods and their gains"
        yield (
            f"The paper's numbers are of {paper.backbone} on images of 224x224 and full test sets; ours of "
            f"{_some(list(used))}, made by the commands below, on the sample above: compare {compare}, not the values."
        )


def _rests_on(records: Sequence[Record]) -> Iterator[str]:
    """What must be said wherever a number rests on some weights."""
    notes = dict.fromkeys(str(note) for r in records if (note := r["run"].get("checkpoint", {}).get("note")))
    for note in notes:
        yield f"These networks rest on {note}."


def _other_worlds(records: Sequence[Record]) -> Iterator[str]:
    for name, called in _WORLD.items():
        values = Counter(str(record.get("environment", {}).get(name, "not recorded")) for record in records)
        if len(values) > 1:
            counted = ", ".join(f"{value} ({_records(count)})" for value, count in values.most_common())
            yield f"The records come from more than one {called}: {counted}."


def _other_data(records: Sequence[Record]) -> Iterator[str]:
    found: dict[str, set[str]] = {}
    for record in records:
        run = record["run"]
        if run.get("data"):
            key = f"{run.get('dataset')} {sorted(run.get('data_options', {}).items())}"
            found.setdefault(key, set()).add(str(run["data"]))
    for key, prints in found.items():
        if len(prints) > 1:
            yield f"The records are of {len(prints)} different versions of the data set {key.split()[0]}."


def _method(records: Sequence[Record]) -> str | None:
    methods = {record["run"].get("method") for record in records}
    return methods.pop() if len(methods) == 1 else None


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LONGEST} more" if len(names) > _LONGEST else ""
    return ", ".join(names[:_LONGEST]) + more


def _records(count: int) -> str:
    return "1 record" if count == 1 else f"{count} records"
