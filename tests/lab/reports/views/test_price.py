import numpy as np

from domainadaptor.lab.reports.numbers import number
from tests.lab.reports.folder import COST, shown, table, texts


def test_price_is_time_and_accuracy_over_all_columns(made):
    columns = ["photo", "sketch"]
    rows = [made.row(method, method, columns, seeds=(0,)) for method in ("source", "adamixbn", "tent")]
    rows.append(made.row("late", "slr", columns, seeds=(0,), keep=False))
    found = shown(made, table("t", rows, columns, show="price"))
    records = [made.record([domain], "adamixbn") for domain in columns]
    right = [100 * r.scores[domain].right / 40 for r, domain in zip(records, columns, strict=True)]
    lines = texts(found.tables[0])
    assert list(lines) == ["source", "adamixbn", "tent"]
    assert lines["adamixbn"] == {"relative time": f"{COST['adamixbn']:.2f}", "accuracy, %": number(np.mean(right))}
    legend = found.figures[0].draw().axes[0].get_legend()
    assert [label.get_text() for label in legend.get_texts()] == ["source", "adamixbn", "tent"]
