import numpy as np
import pytest

from domainadaptor.lab.records.plans import PaperNumbers
from tests.lab.reports.folder import DOMAINS, planned_row, shown, table, texts
from tests.lab.reports.measurements import variance

HEAT = {"tau": 2.0, "images": 1, "plain": [1.0, 0.0], "scaled": [0.6, 0.2]}


def curves(label, confidence, loss, gradient=None, temperature=HEAT):
    curve = {"label": label, "confidence": confidence, "loss": loss, "gradient": gradient or loss}
    return {"curves": [curve], "temperature": temperature}


def measured(made, name, values, columns, **more):
    """The view of a measurement with one record per column."""
    cells = {c: [[made.measurement(name, v, c)]] for c, v in zip(columns, values, strict=True)}
    return shown(made, table("t", [planned_row("all", cells)], columns, show=name, **more))


def test_distances_have_a_line_each_and_the_papers_mean(made):
    values = [{"image-to-batch minimum": 0.01 * at, "image-to-batch maximum": 2.0, "source-to-batch": float(at)}
              for at in range(4)]  # fmt: skip
    paper = PaperNumbers(table="statistics-distances", backbone="resnet18")
    found = measured(made, "statistics-distances", values, DOMAINS, paper=paper)
    means = {number.row: (number.value, number.paper) for number in found.numbers if number.column == "mean"}
    assert list(means) == ["image-to-batch minimum", "image-to-batch maximum", "source-to-batch"]
    assert means["image-to-batch minimum"] == (pytest.approx(0.015), 0.011)
    assert means["source-to-batch"] == (1.5, 1.425)


def test_variance_is_next_to_the_papers(made):
    paper = PaperNumbers(table="statistics-variance", backbone="resnet18")
    values = variance(np.random.default_rng(0)) | {"variance": 1.25}
    found = measured(made, "statistics-variance", [values], ["PACS"], mean=False, paper=paper)
    assert (found.numbers[0].value, found.numbers[0].paper) == (1.25, 1.08)


def test_norms_have_a_correlation_and_name_what_the_network_was_trained_without(made):
    classes = [{"name": n, "images": i, "norm": w} for n, i, w in (("a", 10, 1.0), ("b", 20, 2.0), ("c", 30, 3.0))]
    values = {"classes": classes, "correlation": 1.0}
    found = measured(made, "classifier-norms", [values], ["all"])
    assert texts(found.tables[0])["correlation"] == {"all": "1.00"}
    assert texts(found.tables[0])["b"] == {"all": "2.00 (20)"}
    assert found.figures[0].draw().axes
    held_out = made.measurement("classifier-norms", values, "sketch", ("photo",))
    rows = [planned_row("norms", {"sketch": [[held_out]]})]
    (printed,) = shown(made, table("t", rows, ["sketch"], show="classifier-norms")).tables
    assert printed.columns == ("without sketch",)


def test_losses_are_interpolated(made):
    values = curves("EM", [0.4, 0.6, 1.0], [0.7, 0.5, 0.1], [0.0, -1.0, -3.0])
    (line,) = texts(measured(made, "loss-curves", [values], ["all"]).tables[0]).values()
    assert (line["loss at 0.5"], line["gradient at 0.9"]) == ("0.600", "−2.500")


def test_columns_at_different_heights_weigh_alike_at_every_confidence(made):
    spans = (([0.3, 0.52, 0.54, 0.9], 10.0), ([0.5, 0.7, 1.0], 30.0))
    values = [curves("EM", confidence, [height - 2 * c for c in confidence]) for confidence, height in spans]
    (line,) = texts(measured(made, "loss-curves", values, ["sketch", "photo"]).tables[0]).values()
    assert {name: text for name, text in line.items() if name.startswith("loss")} == {
        "loss at 0.5": "19.000", "loss at 0.9": "18.200",
    }  # fmt: skip  # not measured by both at 0.99


def test_losses_of_all_columns_count_and_temperature_is_drawn(made):
    values = [
        curves("EM", [0.5, 1.0], [height, 0.0], None,
               {"tau": 2.0 * images, "images": images, "plain": [1.0, 0.0], "scaled": [0.5 + 0.1 * images, 0.2]})
        for height, images in ((1.0, 1), (3.0, 3))
    ]  # fmt: skip
    found = measured(made, "loss-curves", values, ["sketch", "photo"])
    assert texts(found.tables[0])["EM"]["loss at 0.5"] == "2.000"
    lines, effect = found.figures
    assert "mean over sketch, photo" in lines.caption
    assert len(lines.draw().axes) == 2
    assert "over 4 images" in effect.caption
    assert "divided by 5.0" in effect.caption
    assert [figure.name for figure in found.figures] == ["x", "x-temperature"]
    assert [round(bar.get_height(), 3) for bar in effect.draw().axes[0].patches] == [1.0, 0.0, 0.75, 0.2]
