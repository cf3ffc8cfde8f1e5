import csv
from importlib.resources import files

import pytest

from domainadaptor.lab.reports.paper import ACCURACY, MILLISECONDS, paper_value, place_in_paper
from domainadaptor.lab.reports.plans import PaperCell, PaperColumns

LINES = list(csv.DictReader(files("domainadaptor.lab.reports").joinpath("paper.csv").read_text().splitlines()))


def test_every_printed_number_is_found_under_its_own_name():
    assert len(LINES) == 532
    for line in LINES:
        unit = MILLISECONDS if line["unit"].startswith("milliseconds") else line["unit"]
        found = paper_value(PaperColumns(line["table"], line["backbone"], {}), line["method"], line["column"], unit)
        assert found is not None, line
        assert found.value == float(line["value"]), line
        assert found.deviation == (float(line["std"]) if line["std"] else None), line


@pytest.mark.parametrize(
    ("place", "row", "column", "value"),
    [
        (PaperColumns("comparison", "resnet18", {"mean": "PACS"}), "deepall", "mean", 79.44),
        (PaperColumns("comparison", "resnet18", {}), "deepall", "mean", 71.24),  # the paper's own average
        (PaperColumns("comparison", "resnet50", {}), "DeepAll", "office-home", 70.87),
        (PaperColumns("trained-models", "resnet18", {"paint": "art_painting"}), "mldg+none", "paint", 80.59),
        (PaperColumns("domainbed", "resnet50", {}), "swad+none", "PACS", None),
        (PaperColumns("comparison", "resnet18", {}), None, "PACS", None),
        (PaperColumns("comparison", "resnet101", {}), "deepall", "PACS", None),
        (None, "deepall", "PACS", None),
        (PaperColumns("comparison", "resnet18", {}), PaperCell("deepall", "PACS"), "mean", 79.44),
        (PaperColumns("comparison", "resnet18", {"mean": "VLCS"}), PaperCell("deepall", "PACS"), "mean", 79.44),
        (PaperColumns("comparison", "resnet18", {}), PaperCell("deepall", "PACS"), "PACS", None),
        (PaperColumns("comparison", "resnet18", {}), PaperCell("deepall", "none"), "mean", None),
    ],
)
def test_our_names_lead_to_the_papers(place, row, column, value):
    found = paper_value(place, row, column)
    if place and place.table == "domainbed":  # its backbone is inferred, and may be named without saying so
        value = next(
            float(x["value"]) for x in LINES if (x["table"], x["method"], x["column"]) == ("domainbed", row, column)
        )
    assert (found.value if found else None) == value


def test_one_cell_may_have_two_units():
    place = PaperColumns("time", "resnet18", {})
    assert paper_value(place, "tent", "art_painting", MILLISECONDS).value == 152.19
    assert paper_value(place, "tent", "art_painting", ACCURACY).value == 81.06


def test_places():
    assert place_in_paper("comparison") == 0
    assert place_in_paper("time") < place_in_paper("of our own") == place_in_paper(None)


def test_one_number_of_the_paper_stands_in_every_column_of_a_sweep_but_beside_no_domain():
    place, row = PaperColumns("fixed-alpha", "resnet18", {}), PaperCell("PACS", "dynamic")
    assert [paper_value(place, row, column).value for column in ("0.5", "0.99", "mean")] == [83.43] * 3
    assert paper_value(place, row, "sketch") is None
