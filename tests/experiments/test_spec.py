"""Experiment files: what they expand to, and every mistake at once."""

from pathlib import Path

import pytest

from domainadaptor.errors import BadFile
from domainadaptor.experiments.networks import Located
from domainadaptor.experiments.spec import NETWORKS, cells, read_experiment

EXPERIMENTS = Path(__file__).parents[2] / "experiments"

GOOD = """
title = "A table"
[networks.mine]
checkpoint = "nets/{target}-{seed}.safetensors"
[networks.published]
network = "resnet20"
[rows."untouched"]
method = "source"
[rows."mixed"]
method = "adamixbn"
fold = false
[rows."mixed, paper's"]
method = "adamixbn"
alpha = "paper"
network = "published"
images = 5
[[table]]
title = "One"
dataset = "pacs"
network = "mine"
domains = ["photo", "sketch"]
seeds = [0, 3]
images = 20
"""


@pytest.fixture
def read(tmp_path):
    def write(text):
        path = tmp_path / "table.toml"
        path.write_text(text)
        return read_experiment(path, tmp_path / "runs")

    return write


def located(asked):
    def locate(network, target, seed):
        asked.append((network, target, seed))
        return Located(network, f"{network}-{target}-{seed}")

    return locate


def test_a_cell_for_each_row_domain_and_seed(read):
    (table,) = read(GOOD).tables
    asked = []
    made = [
        cell
        for row in table.rows
        for column in table.columns()
        for seed in table.seeds
        for cell in cells(table, row, column, seed, located(asked))
    ]
    assert len(made) == 3 * 2 * 2
    assert asked[:4] == [("mine", "photo", 0), ("mine", "photo", 3), ("mine", "sketch", 0), ("mine", "sketch", 3)]
    assert asked[-1] == ("published", "sketch", 3)
    assert made[4].options == {"fold": False}
    assert made[4].images == 20
    assert made[-1].images == 5
    assert {cell.method for cell in made} == {"source", "adamixbn"}


def test_a_sweep_varies_what_a_row_leaves_open(read):
    swept = GOOD + '\nsweep = { option = "alpha", values = [0.1, 0.9] }\n'
    (table,) = read(swept).tables
    assert table.columns() == ["0.1", "0.9"]
    options = [
        [cell.options for cell in cells(table, row, column, 0, located([]))]
        for row in table.rows
        for column in table.columns()
    ]
    one = [{}, {}]
    assert options == [
        one,
        one,
        [{"fold": False, "alpha": 0.1}] * 2,
        [{"fold": False, "alpha": 0.9}] * 2,
        [{"alpha": "paper"}] * 2,
        [{"alpha": "paper"}] * 2,
    ]


@pytest.mark.parametrize(
    ("option", "value", "found"),
    [("batch_size", 7, lambda c: c.batch_size), ("subset", 32, lambda c: c.protocol_options["subset"])],
)
def test_a_sweep_over_batches_and_protocols(read, option, value, found):
    swept = GOOD + f'\nprotocol = "few-data"\nsweep = {{ option = "{option}", values = [{value}] }}\n'
    (table,) = read(swept).tables
    (cell, _) = cells(table, table.rows[0], str(value), 0, located([]))
    assert found(cell) == value


def test_groups_are_one_stream_each(read):
    text = GOOD.replace('domains = ["photo", "sketch"]', 'groups = { both = ["photo", "sketch"], P = ["photo"] }')
    (table,) = read(text.replace('network = "mine"', 'network = "published"')).tables
    assert table.columns() == ["both", "P"]
    (cell,) = cells(table, table.rows[0], "both", 0, located([]))
    assert cell.domains == ("photo", "sketch")


def test_all_mistakes_are_said_at_once(read):
    text = (
        GOOD.replace('method = "adamixbn"\nfold', 'method = "adamixbm"\nfold')
        .replace('alpha = "paper"', 'alpha = "papr"')
        .replace('network = "mine"', 'network = "min"\nshow = "acuracy"\nseedz = [1]\nbatch_size = "64"')
        .replace('title = "A table"', 'titel = "A table"')
    )
    with pytest.raises(BadFile) as raised:
        read(text)
    said = str(raised.value)
    for part in ("titel", "adamixbm", "adamixbn", "papr", "seedz", "batch_size", "whole number", "nothing was"):
        assert part in said, part


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('network = "mine"', 'network = "min"', "mine"),
        ("images = 20", 'protocol = "few"', "few-data"),
        ("images = 20", "images = 0", "1 or more"),
        ("images = 20", 'sweep = { option = "alhpa", values = [1] }', "alpha"),
        ("images = 20", 'sweep = { option = "alpha", values = [7] }', "alpha"),
        ("images = 20", 'show = "curve"', "accuracy-curve"),
        ("seeds = [0, 3]", "seeds = [-1]", "seeds"),
        ("images = 20", 'rows = ["mixd"]', "mixed"),
        ("fold = false", "fould = false", "fold"),
        ('network = "resnet20"', "", "expected one of"),
        ('network = "resnet20"', 'network = "resnet20"\nwheights = "none"', "weights"),
    ],
)
def test_each_mistake_names_what_was_meant(read, old, new, said):
    with pytest.raises(BadFile, match=said):
        read(GOOD.replace(old, new))


def test_what_is_no_toml_is_said(read, tmp_path):
    with pytest.raises(BadFile, match="no TOML"):
        read("title = ")
    with pytest.raises(BadFile, match="--list"):
        read_experiment(tmp_path / "none.toml", tmp_path)


@pytest.mark.parametrize(
    "path", sorted(p for p in EXPERIMENTS.glob("*.toml") if p.name != NETWORKS), ids=lambda path: path.stem
)
def test_the_experiments_of_this_project_are_well_formed(path, tmp_path):
    experiment = read_experiment(path, tmp_path)
    assert experiment.tables
    assert experiment.about


def test_there_is_an_experiment_for_every_table_of_the_paper(tmp_path):
    import csv

    numbers = Path(__file__).parents[2] / "src" / "domainadaptor" / "reports" / "paper.csv"
    with numbers.open(newline="") as file:
        rows = list(csv.DictReader(file))
    known = {(row["table"], row["backbone"], row["method"]) for row in rows}
    shown = set()
    for path in EXPERIMENTS.glob("*.toml"):
        if path.name == NETWORKS:
            continue
        for table in read_experiment(path, tmp_path).tables:
            for row in table.rows if table.paper else ():
                if row.paper is not None:
                    name = row.paper["method"] if isinstance(row.paper, dict) else row.paper
                    assert (table.paper["table"], table.paper["backbone"], name) in known, (path.name, row.label)
                    shown.add(table.paper["table"])
            if table.paper:
                shown.add(table.paper["table"])
    assert shown == {table for table, _, _ in known}
