import csv
from importlib.resources import files

import pytest

from domainadaptor.lab.records.plans import PaperNumber, PaperNumbers
from domainadaptor.lab.reports.paper import ACCURACY, MILLISECONDS, paper_value, place_in_paper

LINES = list(csv.DictReader(files("domainadaptor.lab.reports").joinpath("paper.csv").read_text().splitlines()))


def place(table, backbone="resnet18", **columns):
    return PaperNumbers(table=table, backbone=backbone, columns=columns)


def number(method, column):
    return PaperNumber(method=method, column=column)


def test_every_printed_number_is_found_under_its_own_name():
    assert len(LINES) == 532
    for line in LINES:
        unit = MILLISECONDS if line["unit"].startswith("milliseconds") else line["unit"]
        found = paper_value(place(line["table"], line["backbone"]), line["method"], line["column"], unit)
        assert found is not None, line
        assert found.mean == float(line["value"]), line
        assert found.deviation == (float(line["std"]) if line["std"] else None), line


@pytest.mark.parametrize(
    ("where", "row", "column", "value"),
    [
        (place("comparison", mean="PACS"), "deepall", "mean", 79.44),
        (place("comparison"), "deepall", "mean", 71.24),  # the paper's own average
        (place("comparison", "resnet50"), "DeepAll", "office-home", 70.87),
        (place("trained-models", paint="art_painting"), "mldg+none", "paint", 80.59),
        (place("comparison"), None, "PACS", None),
        (place("comparison", "resnet101"), "deepall", "PACS", None),
        (None, "deepall", "PACS", None),
        (place("comparison"), number("deepall", "PACS"), "mean", 79.44),
        (place("comparison", mean="VLCS"), number("deepall", "PACS"), "mean", 79.44),
        (place("comparison"), number("deepall", "PACS"), "PACS", None),
        (place("comparison"), number("deepall", "none"), "mean", None),
    ],
)
def test_our_names_lead_to_the_papers(where, row, column, value):
    found = paper_value(where, row, column)
    assert (found.mean if found else None) == value


def test_an_inferred_backbone_may_be_named_without_that_word():
    line = next(line for line in LINES if (line["table"], line["method"]) == ("domainbed", "swad+none"))
    assert "(" in line["backbone"]
    found = paper_value(place("domainbed", line["backbone"].partition(" ")[0]), "swad+none", line["column"])
    assert found.mean == float(line["value"])


def test_one_cell_may_have_two_units():
    assert paper_value(place("time"), "tent", "art_painting", MILLISECONDS).mean == 152.19
    assert paper_value(place("time"), "tent", "art_painting", ACCURACY).mean == 81.06


def test_tables_are_in_the_papers_order():
    assert place_in_paper("comparison") == 0
    assert place_in_paper("time") < place_in_paper("not in the paper")


def test_one_number_of_the_paper_stands_in_every_column_of_a_sweep_but_beside_no_domain():
    found = [paper_value(place("fixed-alpha"), number("PACS", "dynamic"), c) for c in ("0.5", "0.99", "mean", "sketch")]
    assert [value.mean if value else None for value in found] == [83.43, 83.43, 83.43, None]
