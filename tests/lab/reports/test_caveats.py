import json
import math
import re

import pytest

from domainadaptor.lab.reports.caveats import remarks
from tests.lab.reports.folder import DOMAINS, asked, checksum, table


def remarks_on(made, planned):
    return remarks(asked(made, planned))


def of_dataset(made, name):
    """The same records as if of another data set."""
    for path in (made.path / "records").glob("*.json"):
        record = json.loads(path.read_text())
        del record["checksum"]
        record["run"]["dataset"] = name
        path.write_text(json.dumps({**record, "checksum": checksum(record)}))


def uncertain(said):
    (sentence,) = [text for text in said if text.startswith("One seed")]
    return [float(found) for found in re.findall(r"by (?:about |at most )?(\d+\.\d)", sentence)]


def test_numbers_that_the_paper_does_not_have_are_not_spoken_of(made):
    rows = [made.row("tent", "tent", seeds=(0,))]
    for name, said in (("comparison", 1), ("table_99", 0)):
        planned = table("t", rows, paper={"table": name, "backbone": "resnet18"})
        assert sum("The paper's numbers are of" in text for text in remarks_on(made, planned)) == said


def test_runs_without_an_id_are_counted_one_by_one(made):
    (there,), _ = made.cell("photo", "tent", seeds=(0,))
    rows = [
        {"label": "a", "cells": {"photo": [there, None], "sketch": [None, None]}},
        {"label": "the same", "cells": {"photo": [there], "sketch": ["0123", "0123"]}},
    ]
    assert (
        remarks_on(made, table("t", rows, ["photo", "sketch"]))[0]
        == "Not complete: 1 of 5 runs are there, 4 not run yet."
    )


def test_a_mean_of_the_same_images_is_no_surer_than_one_column(made):
    planned = table("t", [made.row("Tent", "tent", seeds=(0,))])
    shares = [json.loads(path.read_text())["scores"] for path in (made.path / "records").glob("*.json")]
    shares = [score["right"] / score["images"] for scores in shares for score in scores.values()]
    errors = [100 * math.sqrt(share * (1 - share) / 40) for share in shares]
    single = sum(sorted(errors)[1:3]) / 2
    independent = math.sqrt(sum(error**2 for error in errors)) / 4
    assert uncertain(remarks_on(made, planned)) == pytest.approx([single, independent], abs=0.051)
    of_dataset(made, "cifar10-c")
    said = remarks_on(made, planned)
    assert uncertain(said) == pytest.approx([single, sum(errors) / 4], abs=0.051)
    assert any("the same images" in text for text in said)


def test_domains_that_are_counted_together_show_an_image_once(made):
    records = [made.write(made.record([domain], "tent")) for domain in DOMAINS]
    right = sum(score["right"] for record in records for score in record["scores"].values()) / 160
    planned = table("t", [{"label": "Tent", "cells": {"8": [[record["id"] for record in records]]}}], ["8"], mean=False)
    assert uncertain(remarks_on(made, planned)) == pytest.approx(
        [100 * math.sqrt(right * (1 - right) / 160)], abs=0.051
    )
    of_dataset(made, "corrupted")
    assert uncertain(remarks_on(made, planned)) == pytest.approx([100 * math.sqrt(right * (1 - right) / 40)], abs=0.051)
