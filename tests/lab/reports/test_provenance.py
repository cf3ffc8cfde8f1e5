"""How the numbers of a table were obtained, in words."""

from domainadaptor.lab.reports.provenance import origin
from tests.lab.reports.folder import asked, table


def test_what_a_method_took_by_itself_and_what_images_went_through_is_said(made):
    seen = {"size": 64, "resize": 73, "mean": [0.5, 0.4, 0.3], "std": [0.2, 0.2, 0.2], "interpolation": "bicubic"}
    record = made.record(
        ["sketch"], "tent", options={"lr": 0.5}, defaults={"lr": 0.001, "momentum": 0.9}, preprocessing=seen
    )
    made.write(record)
    found = origin(asked(made, table("t", [{"label": "Tent", "cells": {"sketch": [record["id"]]}}], ["sketch"])))
    assert found.methods == (("Tent", "tent (lr 0.5), otherwise momentum 0.9"),)
    said = "shorter side to 73 (bicubic), center crop 64, mean 0.5 0.4 0.3, deviation 0.2 0.2 0.2"
    assert dict(found.facts)["preprocessing"] == said
