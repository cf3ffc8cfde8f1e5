from domainadaptor.lab.records.plans import PaperNumbers
from tests.lab.reports.folder import COST, shown, table, texts


def test_time_is_milliseconds_and_a_ratio_next_to_the_papers(made):
    rows = [made.row(m, m, ["art_painting"], paper=p) for m, p in (("source", "none"), ("tent", "tent"))]
    paper = PaperNumbers(table="time", backbone="resnet18")
    found = shown(made, table("t", rows, ["art_painting"], show="time", mean=False, paper=paper))
    lines = texts(found.tables[0])
    assert lines["tent"]["relative time"].startswith(f"{COST['tent']:.2f}")
    assert lines["tent"]["paper, ms"] == "152.2"
    assert lines["tent"]["paper, relative time"] == f"{152.19 / 34.4:.2f}"
    assert lines["source"]["relative time"].startswith("1.00")
    assert "RTX 2080" in found.tables[0].caption
    assert len(found.figures[0].draw().axes[0].patches) == 2


def test_without_the_paper_its_columns_are_left_out(made):
    found = shown(made, table("t", [made.row("Tent", "tent", ["sketch"])], ["sketch"], show="time", mean=False))
    assert found.tables[0].columns == ("ms per batch", "source model, ms", "relative time", "accuracy, %")
    assert "RTX" not in found.tables[0].caption
