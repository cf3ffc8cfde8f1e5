"""Numbers as CSV, a line a number, as the paper's are kept."""

import csv
import io

from domainadaptor.lab.reports.sections import Chapter

COLUMNS = ("table", "group", "row", "column", "what", "value", "deviation", "seeds", "paper", "paper_deviation",
           "difference", "state", "reason", "command")  # fmt: skip


def details(found: Chapter) -> str:
    """More numbers of an experiment, a line for each row, column and domain; "" where there are none."""
    lines = [{"table": section.title, **line} for section in found.sections for line in section.details]
    if not lines:
        return ""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(name for line in lines for name in line)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def chapter(found: Chapter) -> str:
    """One experiment; numbers are not rounded."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for section in found.sections:
        for fact in section.shown.facts:
            writer.writerow(
                [section.title, fact.group, fact.row, fact.column, fact.what]
                + ["" if value is None else repr(value) for value in (fact.value, fact.deviation)]
                + [fact.seeds or ""]
                + ["" if v is None else repr(v) for v in (fact.paper, fact.paper_deviation, fact.difference)]
                + [fact.state, fact.reason, fact.command]
            )
    return text.getvalue()
