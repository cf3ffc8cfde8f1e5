import statistics

import pytest

from domainadaptor.lab.records.plans import PaperNumber, PaperNumbers, PlannedRun
from domainadaptor.lab.reports.numbers import number
from domainadaptor.lab.reports.sections import chapters
from tests.lab.reports.folder import DOMAINS, failing, planned_row, selected, shown, table, texts

PACS = PaperNumbers(table="comparison", backbone="resnet18", columns={"mean": "PACS"})


def percent(record):
    (score,) = record.scores.values()
    return 100 * score.right / score.images


def percents(made, row, column):
    return [percent(made.records[run.id]) for seed in row.cells[column] for run in seed]


def printed(values):
    return f"{number(statistics.mean(values))} ± {number(statistics.pstdev(values))}"


def section(made, planned, command="domainadaptor run x.toml"):
    plan = made.plan("x", [planned], command=command)
    return next(chapters([plan], made.records)).sections[0]


def test_cells_are_means_and_population_deviations_over_seeds(made):
    row = made.row("Tent", "tent")
    found = shown(made, table("t", [row]))
    by_domain = {domain: percents(made, row, domain) for domain in DOMAINS}
    means = [statistics.mean(by_domain[domain][seed] for domain in DOMAINS) for seed in range(3)]
    expected = {domain: printed(values) for domain, values in by_domain.items()} | {"mean": printed(means)}
    assert texts(found.tables[0]) == {"Tent": expected}
    assert found.numbers[-1].value == pytest.approx(statistics.mean(means))
    assert found.numbers[-1].deviation == pytest.approx(statistics.pstdev(means))


def test_one_seed_has_no_deviation(made):
    row = made.row("Tent", "tent", seeds=(0,))
    assert texts(shown(made, table("t", [row])).tables[0])["Tent"]["photo"] == number(percents(made, row, "photo")[0])


def test_a_sweep_averages_domains_first_and_seeds_then(made):
    domains = ("sketch", "photo")
    records = [[made.add(made.record([domain], "tent", seed)) for domain in domains] for seed in (0, 1)]
    found = shown(made, table("t", [planned_row("Tent", {"64": records})], ["64"], mean=False))
    seeds = [statistics.mean(map(percent, own)) for own in records]
    assert found.numbers[0].value == pytest.approx(statistics.mean(seeds))
    assert found.numbers[0].deviation == pytest.approx(statistics.pstdev(seeds))


def test_seeds_that_cannot_be_paired_have_a_mean_without_deviation(made):
    one, two = made.row("a", "tent", ["photo"], seeds=(0,)), made.row("a", "tent", ["sketch"], seeds=(0, 1))
    row = one.model_copy(update={"cells": {**one.cells, **two.cells}})
    found = shown(made, table("t", [row], ["photo", "sketch"])).numbers[-1]
    literal = statistics.mean(statistics.mean(percents(made, row, column)) for column in ("photo", "sketch"))
    assert (found.value, found.deviation, found.seeds) == (pytest.approx(literal), None, 1)


def test_the_best_of_a_column_is_bold_also_when_it_is_shared(made):
    rows = [made.row(label, "tent", ["sketch"], gain=gain) for label, gain in (("a", 0.0), ("b", 0.4), ("c", 0.01))]
    rows.append(rows[1].model_copy(update={"label": "again"}))
    (found,) = shown(made, table("t", rows, ["sketch"], mean=False)).tables
    assert [line.label for line in found.lines if 0 in line.bold] == ["b", "again"]


def test_few_columns_have_the_paper_beside_them(made):
    rows = [made.row("DeepAll", "source", paper="deepall"), made.row("new", "tent")]
    found = shown(made, table("t", rows, paper=PACS))
    (grid,) = found.tables
    assert grid.columns[-3:] == ("mean", "paper", "difference")
    ours = found.numbers[4]
    assert grid.lines[0].cells[-2:] == ("79.4 ± 0.4", f"{ours.value - 79.44:+.1f}".replace("-", "−"))
    assert grid.lines[1].cells[-2:] == ("", "")
    assert ours.difference == pytest.approx(ours.value - 79.44)
    assert all(line.cells[at][0].isdigit() for line in grid.lines for at in line.bold)
    assert {at for line in grid.lines for at in line.bold} == {0, 1, 2, 3, 4}


def test_bold_stays_with_our_numbers_where_the_paper_stands_between_them(made):
    paper = PaperNumbers(table="comparison", backbone="resnet18", columns={"cartoon": "PACS", "mean": "VLCS"})
    rows = [made.row("DeepAll", "source", paper="deepall"), made.row("new", "tent", gain=0.3)]
    (grid,) = shown(made, table("t", rows, paper=paper)).tables
    expected = ("art_painting", "cartoon", "paper", "difference", "photo", "sketch", "mean", "paper", "difference")
    assert grid.columns == expected
    assert grid.lines[1].bold == {at for at, name in enumerate(expected) if name in (*DOMAINS, "mean")}


def test_many_columns_have_the_paper_below_them(made):
    paper = PaperNumbers(table="trained-models", backbone="resnet18")
    (grid,) = shown(made, table("t", [made.row("MLDG", "source", paper="mldg+none")], paper=paper)).tables
    _, theirs = grid.lines
    assert theirs.below
    assert theirs.cells[2].startswith("94.9, ")
    assert theirs.cells[4].startswith("82.3, ")  # the mean is the paper's average


def test_a_row_may_be_one_number_of_the_paper_which_stands_beside_its_mean(made):
    paper = PaperNumbers(table="comparison", backbone="resnet18", columns={"mean": "VLCS", "sketch": "PACS"})
    row = made.row("DeepAll", "source", ["photo", "sketch"], paper=PaperNumber(method="deepall", column="PACS"))
    found = shown(made, table("t", [row], ["photo", "sketch"], paper=paper))
    assert found.tables[0].columns == ("photo", "sketch", "mean", "paper", "difference")
    assert found.tables[0].lines[0].cells[3] == "79.4 ± 0.4"  # neither VLCS, nor beside a domain
    assert [result.paper for result in found.numbers] == [None, None, 79.44]


def test_a_missing_cell_spoils_the_mean(made):
    row, late = made.row("Tent", "tent", DOMAINS[:3]), made.row("Tent", "tent", ["sketch"], keep=False)
    planned = table("t", [row.model_copy(update={"cells": {**row.cells, **late.cells}})])
    assert shown(made, planned).tables[0].lines[0].cells[3:] == ("missing", "")
    gaps = selected(made, planned).gaps()
    assert gaps == [("Tent", "sketch", False, "")] * 3


def test_a_cell_with_some_of_its_seeds_says_so_and_spoils_the_mean(made):
    row = made.row("Tent", "tent")
    left = [percents(made, row, "photo")[at] for at in (0, 2)]
    del made.records[row.cells["photo"][1][0].id]
    found = shown(made, table("t", [row]))
    assert found.tables[0].lines[0].cells[2:5:2] == (f"{printed(left)} (2 of 3)", "")
    assert [result.state for result in found.numbers] == ["done", "done", "partial", "done", "missing"]


def test_a_failed_cell_has_its_reason(made):
    record = made.add(failing(made.record(["sketch"], "tent"), "no memory"))
    planned = table("t", [planned_row("Tent", {"sketch": [[record]]})], ["sketch"], mean=False)
    found = shown(made, planned)
    assert found.tables[0].lines[0].cells == ("failed",)
    assert (found.numbers[0].state, found.numbers[0].reason) == ("failed", "no memory")
    assert selected(made, planned).gaps() == [("Tent", "sketch", True, "no memory")]


def test_a_cell_that_cannot_run_says_why(made):
    run = PlannedRun(command="domainadaptor evaluate", missing="no checkpoint at 'mine.safetensors'")
    planned = table("t", [planned_row("Tent", {"sketch": [[run]]})], ["sketch"])
    found = shown(made, planned)
    assert (found.numbers[0].state, found.numbers[0].reason) == ("missing", run.missing)


def test_a_run_without_an_id_is_missing(made):
    record = made.add(made.record(["photo"], "tent"))
    planned = table("t", [planned_row("Tent", {"photo": [[record], [PlannedRun()]]})], ["photo"])
    assert shown(made, planned).tables[0].lines[0].cells == (f"{number(percent(record))} (1 of 2)", "")


@pytest.mark.parametrize(
    ("value", "text"), [(80.85, "80.9"), (22.65, "22.7"), (-0.04, "0.0"), (-1.25, "−1.3"), (1e-9, "0.0"), (None, "")]
)
def test_halves_are_rounded_away_from_zero(value, text):
    assert number(value) == text
