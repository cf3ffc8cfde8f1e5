from domainadaptor.lab.records.plans import PaperNumbers
from domainadaptor.lab.reports.views.accuracy import axis_of
from tests.lab.reports.folder import DOMAINS, planned_row, selected, shown, table


def curve(made, rows, columns):
    return selected(made, table("t", rows, columns, show="accuracy-curve"))


def swept(made, columns, name):
    records = {c: made.add(made.record(["sketch"], "tent", **name(int(c)))) for c in columns}
    return planned_row("Tent", {c: [[record]] for c, record in records.items()})


def test_the_axis_is_the_setting_that_columns_are_named_after(made):
    row = swept(made, ["1", "16"], lambda size: {"batch_size": size})
    assert axis_of(curve(made, [row], ["1", "16"])) == "batch size"
    same = made.add(made.record(["sketch"], "source"))
    source = planned_row("source", {"1": [[same]], "16": [[same]]})
    assert axis_of(curve(made, [source, row], ["1", "16"])) == "batch size"
    assert axis_of(curve(made, [source], ["1", "16"])) == ""
    assert axis_of(curve(made, [made.row("Tent", "tent")], DOMAINS)) == ""
    row = swept(made, ["8", "9"], lambda size: {"options": {"subset": size}})
    assert axis_of(curve(made, [row], ["8", "9"])) == "images per subset"


def test_columns_may_be_the_number_of_domains_in_a_stream(made):
    records = {str(n): made.add(made.record(DOMAINS[:n], "tent", stream=True)) for n in (1, 2, 4)}
    row = planned_row("Tent", {column: [[record]] for column, record in records.items()})
    assert axis_of(curve(made, [row], ["1", "2", "4"])) == "domains per stream"


def test_the_curve_has_all_numbers_and_words_stand_apart(made):
    records = {c: made.add(made.record(["photo"], "adamixbn", options={"alpha": a})) for c, a in
               (("0.5", 0.5), ("0.9", 0.9), ("dynamic", "code"))}  # fmt: skip
    row = planned_row("PACS", {column: [[record]] for column, record in records.items()}, paper="PACS")
    paper = PaperNumbers(table="fixed-alpha", backbone="resnet18")
    found = shown(made, table("t", [row], list(records), show="accuracy-curve", mean=False, paper=paper))
    (figure,) = found.figures
    assert figure.caption == "t: accuracy by alpha. Thin dashed lines are the paper's."
    panel = figure.draw().axes[0]
    assert [text.get_text() for text in panel.get_xticklabels()] == ["0.5", "0.9", "dynamic"]
    ours = [line for line in panel.lines if line.get_marker() == "o"]
    assert [len(line.get_xdata()) for line in ours] == [2, 1]
