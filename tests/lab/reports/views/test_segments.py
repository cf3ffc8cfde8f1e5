import numpy as np

from domainadaptor.lab.reports.figures import GREY
from domainadaptor.lab.reports.numbers import number
from tests.lab.reports.folder import DOMAINS, changed, planned_row, shown, table, texts


def test_segments_are_in_order_and_next_to_the_source_model(made):
    records = [made.add(made.record(DOMAINS, "tent", seed, stream=True)) for seed in (0, 1)]
    row = planned_row("Tent", {"PACS": [[record] for record in records]})
    (printed,) = shown(made, table("t", [row], ["PACS"], show="segments")).tables
    assert list(printed.columns) == [*DOMAINS, "all"]
    lines = texts(printed)
    for label, count in (("Tent", "right"), ("source model", "source_right")):
        values = [100 * getattr(r.scores["photo"], count) / 40 for r in records]
        assert lines[label]["photo"] == f"{number(np.mean(values))} ± {number(np.std(values))}"
        whole = [100 * sum(getattr(s, count) for s in r.scores.values()) / (40 * len(DOMAINS)) for r in records]
        assert lines[label]["all"] == f"{number(np.mean(whole))} ± {number(np.std(whole))}"


def test_a_row_of_the_source_model_is_the_grey_line(made):
    rows = [
        planned_row(label, {"PACS": [[made.add(made.record(DOMAINS, method, 0, stream=True))]]})
        for label, method in (("Tent", "tent"), ("DeepAll", "source"))
    ]
    found = shown(made, table("t", rows, ["PACS"], show="segments"))
    handles, labels = found.figures[0].draw().axes[0].get_legend_handles_labels()
    grey = {label: handle.lines[0].get_color() == GREY for handle, label in zip(handles, labels, strict=True)}
    assert grey == {"Tent": False, "DeepAll": True}


def test_a_segment_of_mixed_images_is_shown_domain_by_domain(made):
    record = made.record(["photo", "sketch"], "tent", stream=True)
    counts = {key: sum(getattr(s, key) for s in record.scores.values()) for key in ("images", "right", "source_right")}
    made.add(mixed := changed(record, segments=[{"name": "photo+sketch", "fresh": True, **counts}]))
    row = planned_row("Tent", {"PS": [[mixed]]})
    (printed,) = shown(made, table("t", [row], ["PS"], show="segments")).tables
    rights = [record.scores[domain].right for domain in ("photo", "sketch")]
    expected = {"photo": number(100 * rights[0] / 40), "sketch": number(100 * rights[1] / 40)}
    assert texts(printed)["Tent"] == {**expected, "all": number(100 * sum(rights) / 80)}
