"""Time of a batch, against plain inference of the same network on the same batches."""

from functools import partial

from domainadaptor.lab.reports.cells import Cell, Number
from domainadaptor.lab.reports.counts import accuracy, milliseconds, plain_milliseconds, ratio
from domainadaptor.lab.reports.figures.bars import draw_ratios
from domainadaptor.lab.reports.grid import Entry, Fact, Grid, Line, embolden, number, with_deviation
from domainadaptor.lab.reports.paper import ACCURACY, MILLISECONDS, PaperValue, paper_value
from domainadaptor.lab.reports.plans import RowPlan
from domainadaptor.lab.reports.views.shown import Ask, Figure, Shown

_COLUMNS = ("ms a batch", "plain, ms", "times plain", "accuracy, %")
_PAPER = ("paper, ms", "paper, times plain", "paper, accuracy, %")
_PLAIN = "none"  # what the paper's table calls plain inference


def show(ask: Ask) -> Shown:
    """A line a row and column: milliseconds, the ratio, and the paper's; and the ratios as bars."""
    table = ask.table
    lines, ratios, facts, bars = [], [], [], []
    several = len(table.columns) > 1
    for row in table.rows:
        for column, cell in ask.cells(row).items():
            if not cell.seeds and not cell.gaps:
                continue
            label = f"{row.label}, {column}" if several else row.label
            paper = _paper(ask, row, column)
            lines.append(Line(label, (*_ours(cell), *_theirs(paper)), row.group))
            found = cell.spread(ratio)
            adapts = any(record["run"].get("method") != "source" for record in cell.records)
            ratios.append(found.mean if found and adapts else None)
            facts += _facts(row, column, cell, paper)
            if found:
                bars.append((label, found, cell.spread(milliseconds)))
    lines = embolden(lines, 2, ratios, lowest=True)
    columns = (*_COLUMNS, *_PAPER)
    kept = [at for at in range(len(columns)) if at < len(_COLUMNS) or any(line.entries[at].text for line in lines)]
    grid = Grid(
        table.corner,
        tuple(columns[at] for at in kept),
        tuple(Line(line.label, tuple(line.entries[at] for at in kept), line.group) for line in lines),
        "Times plain: how many inferences of the untouched network, on the same batches of the same run, one costs. "
        + ("The paper's times are of an RTX 2080: compare ratios, not milliseconds." if len(kept) > 4 else ""),
        tuple(at for at, column in enumerate(kept) if column >= len(_COLUMNS)),
    )
    figures = (Figure(ask.name, f"{table.title}: time of a batch, in plain inferences.", partial(draw_ratios, bars)),)
    return Shown((grid,), figures=figures if bars else (), facts=tuple(facts), gaps=ask.gaps())


def _ours(cell: Cell) -> tuple[Entry, ...]:
    if not cell.seeds:
        reasons = "; ".join(dict.fromkeys(gap.failed for gap in cell.gaps if gap.failed))
        word = Entry("failed" if reasons else "missing", muted=True, hint=reasons or "not run yet")
        return (word, Entry(), Entry(), Entry())
    return (
        Entry(with_deviation(cell.spread(milliseconds))),
        Entry(with_deviation(cell.spread(plain_milliseconds))),
        Entry(with_deviation(cell.spread(ratio), 2)),
        Entry(with_deviation(cell.spread(accuracy))),
    )


def _paper(ask: Ask, row: RowPlan, column: str) -> tuple[PaperValue | None, float | None, PaperValue | None]:
    theirs = paper_value(ask.table.paper, row.paper, column, MILLISECONDS)
    plain = paper_value(ask.table.paper, _PLAIN, column, MILLISECONDS)
    return (
        theirs,
        theirs.value / plain.value if theirs and plain else None,
        paper_value(ask.table.paper, row.paper, column, ACCURACY),
    )


def _theirs(paper: tuple[PaperValue | None, float | None, PaperValue | None]) -> tuple[Entry, ...]:
    texts = (with_deviation(paper[0]), number(paper[1], 2), with_deviation(paper[2]))
    return tuple(Entry(text, muted=True) for text in texts)


def _facts(
    row: RowPlan, column: str, cell: Cell, paper: tuple[PaperValue | None, float | None, PaperValue | None]
) -> list[Fact]:
    state = "done" if cell.whole else "partial" if cell.seeds else "missing"
    reason = "; ".join(dict.fromkeys(gap.failed for gap in cell.gaps if gap.failed))
    theirs = (paper[0].value if paper[0] else None, None, paper[1], paper[2].value if paper[2] else None)
    numbers: tuple[Number, ...] = (milliseconds, plain_milliseconds, ratio, accuracy)
    facts = []
    for what, measure, printed in zip(_COLUMNS, numbers, theirs, strict=True):
        found = cell.spread(measure)
        facts.append(
            Fact(
                row.label, column, what, found.mean if found else None, found.deviation if found else None,
                found.seeds if found else 0, row.group, printed, None,
                "failed" if reason and not cell.seeds else state, reason,
                " && ".join(dict.fromkeys(gap.command for gap in cell.gaps if gap.command)),
            )
        )  # fmt: skip
    return facts
