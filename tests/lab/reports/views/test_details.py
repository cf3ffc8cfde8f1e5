import numpy as np
import pandas as pd

from domainadaptor.lab.reports.details import DETAIL, details_by_domain, details_view
from domainadaptor.lab.reports.numbers import number
from tests.lab.reports.folder import CLASSES, DOMAINS, planned_row, selected, shown, table, texts


def test_details_count_all_images_together(made):
    found = shown(made, table("t", [made.row("Tent", "tent")], show="details"))
    scores = [made.record([d], "tent", seed).scores[d] for d in DOMAINS for seed in range(3)]
    line = texts(found.tables[0])["Tent"]
    images = sum(score.images for score in scores)
    assert line["images"] == str(images)
    columns = {"source model": "source_right", "after": "right", "better": "better", "worse": "worse"}
    for column, count in columns.items():
        assert line[column] == number(100 * sum(getattr(score, count) for score in scores) / images)
    pooled = np.sum([score.calibration for score in scores], axis=0)
    literal = sum(n / images * abs(c / n - r / n) for n, c, r in pooled if n)
    assert line["ECE after"] == number(100 * literal)


def test_details_have_every_domain_and_class(made):
    frame = pd.DataFrame(details_by_domain(selected(made, table("t", [made.row("Tent", "tent")]))), columns=DETAIL)
    scores = [made.record(["sketch"], "tent", seed).scores["sketch"] for seed in range(3)]
    own = frame[frame["domain"] == "sketch"].set_index(["class", "measure"])["value"]
    assert own["", "better"] == round(100 * sum(s.better for s in scores) / 120, 4)
    first = [score.confusion[0] for score in scores]
    assert own[CLASSES[0], "after"] == round(100 * sum(counts[0] for counts in first) / sum(map(sum, first)), 4)


def test_time_and_memory_of_a_stream_belong_to_no_domain(made):
    record = made.add(made.record(DOMAINS, "tent", stream=True))
    planned = table("t", [planned_row("Tent", {"x": [[record]]})], ["x"])
    frame = pd.DataFrame(details_by_domain(selected(made, planned)), columns=DETAIL)
    assert set(frame["domain"]) == set(DOMAINS)
    assert not {"ms per batch", "relative time", "peak memory, MB"} & set(frame["measure"])


def test_the_same_domains_under_another_setting_are_not_counted_together(made):
    def cell(method, **more):
        return [[made.add(made.record([domain], method, **more)) for domain in DOMAINS[:2]]]

    rates = {str(rate): cell("tent", options={"lr": rate}) for rate in (0.1, 0.9)}
    rows = [planned_row("Tent", rates), planned_row("AdaMixBN", dict.fromkeys(rates, cell("adamixbn")))]
    chosen = selected(made, table("t", rows, ["0.1", "0.9"], mean=False))
    (printed,) = details_view(chosen).tables
    assert [line.label for line in printed.lines] == ["Tent, 0.1", "Tent, 0.9", "AdaMixBN"]
    assert [line.cells[0] for line in printed.lines] == [f"{2 * made.images}"] * 3


def test_other_domains_are_counted_together(made):
    (printed,) = details_view(selected(made, table("t", [made.row("Tent", "tent")]))).tables
    assert [(line.label, line.cells[0]) for line in printed.lines] == [("Tent", f"{4 * 3 * made.images}")]
