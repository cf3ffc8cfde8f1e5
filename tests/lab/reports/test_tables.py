import json
import statistics

import pytest

from domainadaptor.lab.reports.cells import Gap
from domainadaptor.lab.reports.grid import number
from domainadaptor.lab.reports.records import read_results
from domainadaptor.lab.reports.sections import gap_lines
from domainadaptor.lab.reports.views import ask_for, show
from tests.lab.reports.folder import DOMAINS, asked, table


def shown(made, planned):
    return show(asked(made, planned))


def percent(made, name):
    (score,) = json.loads((made.path / "records" / f"{name}.json").read_text())["scores"].values()
    return 100 * score["right"] / score["images"]


def texts(grid):
    return {line.label: [entry.text for entry in line.entries] for line in grid.lines}


def test_cells_are_means_and_population_deviations_over_seeds(made):
    row = made.row("Tent", "tent")
    found = shown(made, table("t", [row]))
    (grid,) = found.grids
    assert grid.columns == (*DOMAINS, "mean")
    by_domain = {domain: [percent(made, name) for name in row["cells"][domain]] for domain in DOMAINS}
    expected = [f"{statistics.mean(v):.1f} ± {statistics.pstdev(v):.1f}" for v in by_domain.values()]
    means = [statistics.mean(by_domain[domain][seed] for domain in DOMAINS) for seed in range(3)]
    expected.append(f"{statistics.mean(means):.1f} ± {statistics.pstdev(means):.1f}")
    assert texts(grid) == {"Tent": expected}
    assert [fact.value for fact in found.facts][-1] == pytest.approx(statistics.mean(means))


def test_one_seed_has_no_deviation(made):
    row = made.row("Tent", "tent", seeds=(0,))
    assert (
        texts(shown(made, table("t", [row])).grids[0])["Tent"][0]
        == f"{percent(made, row['cells']['art_painting'][0]):.1f}"
    )


def test_a_sweep_averages_domains_first_and_seeds_then(made):
    ids = {
        (domain, seed): made.write(made.record([domain], "tent", seed))["id"]
        for domain in ("sketch", "photo")
        for seed in (0, 1)
    }
    cells = {"64": [[ids["sketch", 0], ids["photo", 0]], [ids["sketch", 1], ids["photo", 1]]]}
    found = shown(made, table("t", [{"label": "Tent", "cells": cells}], ["64"], mean=False))
    seeds = [statistics.mean(percent(made, ids[domain, seed]) for domain in ("sketch", "photo")) for seed in (0, 1)]
    assert found.facts[0].value == pytest.approx(statistics.mean(seeds))
    assert found.facts[0].deviation == pytest.approx(statistics.pstdev(seeds))


def test_the_best_of_a_column_is_bold_also_when_it_is_shared(made):
    rows = [made.row(label, "tent", ["sketch"], gain=gain) for label, gain in (("a", 0.0), ("b", 0.4), ("c", 0.0))]
    rows.append({**rows[1], "label": "again"})
    (grid,) = shown(made, table("t", rows, ["sketch"], mean=False)).grids
    assert [line.label for line in grid.lines if line.entries[0].bold] == ["b", "again"]


def test_few_columns_have_the_paper_beside_them(made):
    paper = {"table": "comparison", "backbone": "resnet18", "columns": {"mean": "PACS"}}
    found = shown(
        made, table("t", [made.row("DeepAll", "source", paper="deepall"), made.row("new", "tent")], paper=paper)
    )
    (grid,) = found.grids
    assert grid.columns[-3:] == ("mean", "paper", "difference")
    ours = found.facts[4].value
    difference = f"{ours - 79.44:+.1f}".replace("-", "−")
    assert texts(grid)["DeepAll"][-2:] == ["79.4 ± 0.4", difference]
    assert texts(grid)["new"][-2:] == ["", ""]
    assert found.facts[4].difference == pytest.approx(ours - 79.44)


def test_many_columns_have_the_paper_below_them(made):
    paper = {"table": "trained-models", "backbone": "resnet18"}
    (grid,) = shown(made, table("t", [made.row("MLDG", "source", paper="mldg+none")], paper=paper)).grids
    _, theirs = grid.lines
    assert theirs.muted
    assert theirs.entries[2].text.startswith("94.9, ")
    assert theirs.entries[4].text.startswith("82.3, ")  # the mean is the paper's average


def test_a_cell_that_cannot_run_says_why(made):
    row = made.row("Tent", "tent", ["sketch"], seeds=(0,), keep=False)
    row |= {"cells": {"sketch": [None]}, "missing": {"sketch": ["no checkpoint at 'mine.safetensors'"]}}
    found = shown(made, table("t", [row], ["sketch"]))
    (gap,) = found.gaps
    assert not gap.failed
    ((_, [(said, _)]),) = gap_lines(found.gaps, "run")
    assert said == "Tent, sketch: no checkpoint at 'mine.safetensors'"
    assert (found.facts[0].state, found.facts[0].reason) == ("missing", gap.missing)


def test_a_missing_cell_names_its_command_and_spoils_the_mean(made):
    row = made.row("Tent", "tent", DOMAINS[:3])
    late = made.row("Tent", "tent", ["sketch"], keep=False)
    row["cells"] |= late["cells"]
    row["commands"] |= late["commands"]
    found = shown(made, table("t", [row]))
    assert texts(found.grids[0])["Tent"][3:] == ["missing", ""]
    assert [gap.command for gap in found.gaps] == late["commands"]["sketch"]
    assert not any(gap.failed for gap in found.gaps)


def test_a_cell_with_some_of_its_seeds_says_so_and_spoils_the_mean(made):
    row = made.row("Tent", "tent")
    (made.path / "records" / f"{row['cells']['photo'][1]}.json").unlink()
    found = shown(made, table("t", [row]))
    left = [percent(made, row["cells"]["photo"][at]) for at in (0, 2)]
    expected = f"{statistics.mean(left):.1f} ± {statistics.pstdev(left):.1f} (2 of 3)"
    assert texts(found.grids[0])["Tent"][2:5:2] == [expected, ""]
    assert [fact.state for fact in found.facts] == ["done", "done", "partial", "done", "missing"]


def test_a_failed_cell_has_its_reason(made):
    record = made.record(["sketch"], "tent")
    made.write({**{k: v for k, v in record.items() if k not in ("scores", "segments")}, "failed": "no memory"})
    found = shown(made, table("t", [{"label": "Tent", "cells": {"sketch": [record["id"]]}}], ["sketch"], mean=False))
    entry = found.grids[0].lines[0].entries[0]
    assert (entry.text, entry.hint) == ("failed", "no memory")
    assert [(gap.failed, gap.command) for gap in found.gaps] == [("no memory", "domainadaptor run experiments/x.toml")]


def test_a_damaged_record_is_a_reason_too(made):
    row = made.row("Tent", "tent", ["sketch"], seeds=(0,))
    (made.path / "records" / f"{row['cells']['sketch'][0]}.json").write_text("{")
    made.plan("x", [table("t", [row], ["sketch"], mean=False)])
    results = read_results(made.path)
    found = show(ask_for(results.plans[0].tables[0], "x", results))
    assert "damaged" in found.gaps[0].failed


def test_rows_may_be_of_the_answers_before_the_step(made):
    record = made.record(["sketch"], "tent")
    record["scores"]["sketch"]["before_right"] = 11
    made.write(record)
    cells = {"sketch": [record["id"]]}
    rows = [{"label": "before", "cells": cells, "value": "before"}, {"label": "after", "cells": cells}]
    found = shown(made, table("t", rows, ["sketch"], mean=False))
    assert [fact.value for fact in found.facts] == [100 * 11 / 40, percent(made, record["id"])]


def test_a_row_may_be_one_number_of_the_paper_which_stands_beside_its_mean(made):
    paper = {"table": "comparison", "backbone": "resnet18", "columns": {"mean": "VLCS", "sketch": "PACS"}}
    row = made.row("DeepAll", "source", ["photo", "sketch"], paper={"method": "deepall", "column": "PACS"})
    found = shown(made, table("t", [row], ["photo", "sketch"], paper=paper))
    (grid,) = found.grids
    assert grid.columns == ("photo", "sketch", "mean", "paper", "difference")
    assert texts(grid)["DeepAll"][3] == "79.4 ± 0.4"  # neither VLCS, nor beside a domain
    assert [fact.paper for fact in found.facts] == [None, None, 79.44]
    assert found.facts[2].difference == pytest.approx(found.facts[2].value - 79.44)


@pytest.mark.parametrize(
    "paper",
    [{"method": "deepall"}, {"column": "PACS"}, {"method": 3, "column": "PACS"}, {"method": None, "column": ""}],
)
def test_a_number_of_the_paper_needs_its_method_and_its_column(made, paper):
    made.plan("x", [table("t", [{"label": "a", "paper": paper, "cells": {}}])])
    results = read_results(made.path)
    assert not results.plans
    assert "expected a text" in results.damaged["plans/x.json"]


@pytest.mark.parametrize("nested", [False, True], ids=["one a seed", "a list a seed"])
def test_a_cell_without_an_id_is_missing_and_names_what_makes_its_network(made, nested):
    (there,), (again,) = made.cell("photo", "tent", seeds=(0,))
    train = "domainadaptor train pacs --seed 1"
    ids, commands = [there, None], [again, train]
    if nested:
        ids, commands = [[name] for name in ids], [[command] for command in commands]
    row = {"label": "Tent", "cells": {"photo": ids}, "commands": {"photo": commands}}
    found = shown(made, table("t", [row], ["photo"]))
    assert [(gap.failed, gap.command) for gap in found.gaps] == [("", train)]
    assert texts(found.grids[0])["Tent"] == [f"{percent(made, there):.1f} (1 of 2)", ""]
    assert [(fact.state, fact.command) for fact in found.facts] == [("partial", train), ("missing", "")]


@pytest.mark.parametrize("commands", [{}, {"photo": [""]}, {"photo": [None]}], ids=["none", "empty", "null"])
def test_a_cell_without_id_and_command_names_the_command_of_the_experiment(made, commands):
    row = {"label": "Tent", "cells": {"photo": [None]}, "commands": commands}
    (gap,) = shown(made, table("t", [row], ["photo"])).gaps
    assert gap.command == "domainadaptor run experiments/x.toml"


def test_what_is_to_be_done_is_said_once_and_ends_with_the_experiment():
    train = "domainadaptor train pacs --seed 1"
    gaps = [Gap("Tent", domain, "", command) for domain in ("photo", "sketch") for command in (train, train)]
    ((_, lines),) = gap_lines(gaps, "domainadaptor run x.toml")
    assert lines == [
        ("Tent, photo", [train]),
        ("Tent, sketch", []),
        ("with these networks, all of them", ["domainadaptor run x.toml"]),
    ]
    gaps = [Gap("Tent", str(number), "", f"domainadaptor evaluate {number}") for number in range(20)]
    ((_, lines),) = gap_lines(gaps, "domainadaptor run x.toml")
    assert len(lines) == 13
    assert lines[-1][1] == ["domainadaptor run x.toml --missing", "domainadaptor run x.toml"]


@pytest.mark.parametrize(
    ("value", "text"), [(80.85, "80.9"), (22.65, "22.7"), (-0.04, "0.0"), (-1.25, "−1.3"), (1e-9, "0.0"), (None, "")]
)
def test_halves_are_rounded_away_from_zero(value, text):
    assert number(value) == text


def test_an_id_that_is_no_text_is_damage(made):
    made.plan("x", [table("t", [{"label": "a", "cells": {"photo": [3]}}], ["photo"])])
    assert "expected the ids" in read_results(made.path).damaged["plans/x.json"]
