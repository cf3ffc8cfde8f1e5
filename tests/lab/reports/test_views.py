import numpy as np
import pytest

from domainadaptor.lab.reports.caveats import remarks
from domainadaptor.lab.reports.error_analysis import confusion_figure
from domainadaptor.lab.reports.figures.canvas import GREY
from domainadaptor.lab.reports.grid import number, signed
from domainadaptor.lab.reports.views import SHOWS, show
from domainadaptor.lab.reports.views.axis import axis_of
from domainadaptor.lab.reports.views.details import details_grid
from tests.lab.reports.folder import COST, DOMAINS, LAYERS, asked, table


def texts(grid):
    return {line.label: dict(zip(grid.columns, [e.text for e in line.entries], strict=True)) for line in grid.lines}


def test_a_show_that_is_not_known_is_explained(made):
    found = show(asked(made, table("t", [], show="acuracy")))
    assert "did you mean 'accuracy'" in found.problem
    assert not found.grids


@pytest.mark.parametrize("name", SHOWS)
def test_every_show_does_without_records(made, name):
    planned = table("t", [made.row("Tent", "tent", ["sketch"], keep=False)], ["sketch"], show=name)
    found = show(asked(made, planned))
    assert len(found.gaps) == 3
    assert not found.figures


@pytest.mark.parametrize("name", [name for name in SHOWS if name not in ("accuracy", "accuracy-curve")])
def test_records_of_another_kind_are_gaps_with_a_reason(made, name):
    measured = made.measurement("loss-curves", {"curves": [{"label": "x", "confidence": [0.5], "loss": [1.0]}]})
    counted = made.write(made.record(["sketch"], "tent"))["id"]
    wrong = measured if name not in ("loss-curves",) else counted
    found = show(asked(made, table("t", [{"label": "x", "cells": {"sketch": [wrong]}}], ["sketch"], show=name)))
    assert "of the kind" in found.gaps[0].failed


def test_time_is_told_in_milliseconds_and_plain_inferences(made):
    rows = [made.row(m, m, ["art_painting"], paper=p) for m, p in (("source", "none"), ("tent", "tent"))]
    planned = table(
        "t", rows, ["art_painting"], show="time", mean=False, paper={"table": "time", "backbone": "resnet18"}
    )
    found = show(asked(made, planned))
    told = texts(found.grids[0])
    assert told["tent"]["times plain"].startswith(f"{COST['tent']:.2f}")
    assert told["tent"]["paper, ms"] == "152.2"
    assert told["tent"]["paper, times plain"] == f"{152.19 / 34.4:.2f}"
    assert told["source"]["times plain"].startswith("1.00")
    assert len(found.figures) == 1


def test_price_is_time_and_accuracy_over_all_columns(made):
    columns = ["photo", "sketch"]
    rows = [made.row(method, method, columns, seeds=(0,)) for method in ("source", "adamixbn", "tent")]
    rows.append(made.row("half done", "slr", columns, seeds=(0,), keep=False))
    found = show(asked(made, table("t", rows, columns, show="price")))
    records = [made.record([domain], "adamixbn") for domain in columns]
    right = [100 * r["scores"][domain]["right"] / 40 for r, domain in zip(records, columns, strict=True)]
    told = texts(found.grids[0])
    assert list(told) == ["source", "adamixbn", "tent"]
    assert told["adamixbn"] == {"times plain": f"{COST['adamixbn']:.2f}", "accuracy, %": number(np.mean(right))}
    assert len(found.gaps) == 2
    panel = found.figures[0].draw().axes[0]
    assert [label.get_text() for label in panel.get_legend().get_texts()] == ["source", "adamixbn", "tent"]


def test_alpha_has_the_least_squares_line(made):
    row = made.row("AdaMixBN", "adamixbn", ["sketch"], seeds=(0, 1))
    found = show(asked(made, table("t", [row], ["sketch"], show="alpha")))
    records = [made.record(["sketch"], "adamixbn", seed)["alpha"] for seed in (0, 1)]
    values = [(records[0][layer] + records[1][layer]) / 2 for layer in LAYERS]
    depth = [at / (len(LAYERS) - 1) for at in range(len(LAYERS))]
    middle, mean = sum(depth) / len(depth), sum(values) / len(values)
    slope = sum((d - middle) * (v - mean) for d, v in zip(depth, values, strict=True)) / sum(
        (d - middle) ** 2 for d in depth
    )
    told = texts(found.grids[0])["sketch"]
    assert told["slope over the depth"] == f"{slope:.2f}".replace("-", "−")
    assert told["mean"] == f"{mean:.2f}"
    assert [fact.value for fact in found.facts] == pytest.approx(values)


def test_alpha_of_a_method_without_says_so(made):
    assert "none" in show(asked(made, table("t", [made.row("Tent", "tent")], show="alpha"))).problem


def test_details_count_all_images_together(made):
    row = made.row("Tent", "tent")
    found = show(asked(made, table("t", [row], show="details")))
    scores = [made.record([d], "tent", seed)["scores"][d] for d in DOMAINS for seed in range(3)]
    told = texts(found.grids[0])["Tent"]
    images = sum(s["images"] for s in scores)
    assert told["images"] == str(images)
    for column, count in (("untouched", "source_right"), ("after", "right"), ("better", "better"), ("worse", "worse")):
        assert told[column] == f"{100 * sum(s[count] for s in scores) / images:.1f}"
    pooled = np.sum([s["calibration"] for s in scores], axis=0)
    literal = sum(n / images * abs(c / n - r / n) for n, c, r in pooled if n)
    assert told["ECE after"] == f"{100 * literal:.1f}"


def test_segments_are_told_in_order(made):
    records = [made.write(made.record(DOMAINS, "tent", seed, segments=True)) for seed in (0, 1)]
    planned = table("t", [{"label": "Tent", "cells": {"PACS": [r["id"] for r in records]}}], ["PACS"], show="segments")
    found = show(asked(made, planned))
    (grid,) = found.grids
    assert list(grid.columns) == [*DOMAINS, "all"]
    values = [100 * r["scores"]["photo"]["right"] / 40 for r in records]
    assert texts(grid)["Tent"]["photo"] == f"{number(np.mean(values))} ± {number(np.std(values))}"
    plain = [100 * r["scores"]["photo"]["source_right"] / 40 for r in records]
    assert texts(grid)["untouched network"]["photo"] == f"{number(np.mean(plain))} ± {number(np.std(plain))}"
    whole = [100 * sum(s["right"] for s in r["scores"].values()) / (40 * len(DOMAINS)) for r in records]
    assert texts(grid)["Tent"]["all"] == f"{np.mean(whole):.1f} ± {np.std(whole):.1f}"


def test_cautions_of_records_are_remarks(made):
    caution = "dusk is a source of this network: its validation images were taken"
    row = made.row("Tent", "tent", ["sketch"], seeds=(0, 1), cautions=[caution])
    found = remarks(asked(made, table("t", [row], ["sketch"])))
    assert [said for said in found if "validation" in said] == [f"D{caution[1:]}."]


def test_columns_by_how_many_domains_are_in_a_stream(made):
    cells = {str(n): [made.write(made.record(DOMAINS[:n], "tent", segments=True))["id"]] for n in (1, 2, 4)}
    asking = asked(made, table("t", [{"label": "Tent", "cells": cells}], ["1", "2", "4"], show="accuracy-curve"))
    assert axis_of(asking) == "domains in a stream"


def test_a_row_of_the_untouched_network_is_the_grey_line(made):
    rows = [
        {"label": label, "cells": {"PACS": [made.write(made.record(DOMAINS, method, 0, segments=True))["id"]]}}
        for label, method in (("Tent", "tent"), ("DeepAll", "source"))
    ]
    found = show(asked(made, table("t", rows, ["PACS"], show="segments")))
    panel = found.figures[0].draw().axes[0]
    handles, labels = panel.get_legend_handles_labels()
    grey = {label: handle.lines[0].get_color() == GREY for handle, label in zip(handles, labels, strict=True)}
    assert grey == {"Tent": False, "DeepAll": True}


def test_distances_have_a_line_each_and_the_papers_mean(made):
    cells = {
        domain: [
            made.measurement(
                "statistics-distances", {"image-to-batch minimum": 0.01 * at, "source-to-batch": at}, domain
            )
        ]
        for at, domain in enumerate(DOMAINS)
    }
    planned = table("t", [{"label": "all", "cells": cells}], show="statistics-distances",
                    paper={"table": "statistics-distances", "backbone": "resnet18"})  # fmt: skip
    found = show(asked(made, planned))
    means = {fact.row: (fact.value, fact.paper) for fact in found.facts if fact.column == "mean"}
    assert means == {"image-to-batch minimum": (pytest.approx(0.015), 0.011), "source-to-batch": (1.5, 1.425)}


def test_variance_norms_and_losses(made):
    variance = made.measurement("statistics-variance", {"variance": 1.25, "layers": {"a": 1.0, "b": 1.5}}, "PACS")
    paper = {"table": "statistics-variance", "backbone": "resnet18"}
    rows = [{"label": "variance", "cells": {"PACS": [variance]}}]
    planned = table("t", rows, ["PACS"], mean=False, show="statistics-variance", paper=paper)
    found = show(asked(made, planned))
    assert (found.facts[0].value, found.facts[0].paper) == (1.25, 1.08)

    classes = [{"name": n, "images": i, "norm": w} for n, i, w in (("a", 10, 1.0), ("b", 20, 2.0), ("c", 30, 3.0))]
    norms = made.measurement("classifier-norms", {"classes": classes, "correlation": 1.0})
    planned = table("t", [{"label": "norms", "cells": {"all": [norms]}}], ["all"], show="classifier-norms")
    assert texts(show(asked(made, planned)).grids[0])["correlation"] == {"all": "1.00"}
    left_out = made.measurement("classifier-norms", {"classes": classes, "correlation": 1.0}, "sketch", ("photo",))
    planned = table("t", [{"label": "norms", "cells": {"sketch": [left_out]}}], ["sketch"], show="classifier-norms")
    assert show(asked(made, planned)).grids[0].columns == ("without sketch",)

    curve = {"label": "entropy", "confidence": [0.4, 0.6, 1.0], "loss": [0.7, 0.5, 0.1], "gradient": [0.0, -1.0, -3.0]}
    losses = made.measurement("loss-curves", {"curves": [curve]})
    planned = table("t", [{"label": "losses", "cells": {"all": [losses]}}], ["all"], show="loss-curves")
    told = texts(show(asked(made, planned)).grids[0])["entropy"]
    assert (told["loss at 0.5"], told["gradient at 0.9"]) == ("0.600", "−2.500")


def test_columns_at_different_heights_weigh_alike_at_every_confidence(made):
    cells = {}
    for domain, confidence, height in (("sketch", [0.3, 0.52, 0.54, 0.9], 10.0), ("photo", [0.5, 0.7, 1.0], 30.0)):
        curve = {"label": "EM", "confidence": confidence, "loss": [height - 2 * c for c in confidence]}
        cells[domain] = [made.measurement("loss-curves", {"curves": [curve]}, domain)]
    planned = table("t", [{"label": "all", "cells": cells}], ["sketch", "photo"], show="loss-curves")
    (line,) = texts(show(asked(made, planned)).grids[0]).values()
    assert line == {"loss at 0.5": "19.000", "loss at 0.9": "18.200"}  # nobody knows it at 0.99


def test_losses_of_all_columns_count_and_temperature_is_drawn(made):
    cells = {}
    for domain, height, images in (("sketch", 1.0, 1), ("photo", 3.0, 3)):
        curve = {"label": "EM", "confidence": [0.5, 1.0], "loss": [height, 0.0], "gradient": [height, 0.0]}
        heat = {"tau": 2.0 * images, "images": images, "plain": [1.0, 0.0], "scaled": [0.5 + 0.1 * images, 0.2]}
        cells[domain] = [made.measurement("loss-curves", {"curves": [curve], "temperature": heat}, domain)]
    planned = table("t", [{"label": "all", "cells": cells}], ["sketch", "photo"], show="loss-curves")
    found = show(asked(made, planned))
    assert texts(found.grids[0])["EM"]["loss at 0.5"] == "2.000"
    curves, softened = found.figures
    assert "mean over sketch, photo" in curves.caption
    assert "over 4 images" in softened.caption
    assert "divided by 5.0" in softened.caption
    assert [figure.name for figure in found.figures] == ["x", "x-temperature"]
    panel = softened.draw().axes[0]
    assert [round(bar.get_height(), 3) for bar in panel.patches] == [1.0, 0.0, 0.75, 0.2]


def test_the_axis_is_the_setting_that_columns_are_named_after(made):
    cells = {size: [made.write(made.record(["sketch"], "tent", batch_size=int(size)))["id"]] for size in ("1", "16")}
    ask = asked(made, table("t", [{"label": "Tent", "cells": cells}], ["1", "16"], show="accuracy-curve"))
    assert axis_of(ask) == "batch size"
    same = made.write(made.record(["sketch"], "source", batch_size=64))["id"]
    rows = [{"label": "source", "cells": {"1": [same], "16": [same]}}, {"label": "Tent", "cells": cells}]
    assert axis_of(asked(made, table("t", rows, ["1", "16"], show="accuracy-curve"))) == "batch size"
    assert axis_of(asked(made, table("t", rows[:1], ["1", "16"], show="accuracy-curve"))) == ""
    assert axis_of(asked(made, table("t", [made.row("Tent", "tent")]))) == ""
    cells = {
        size: [made.write(made.record(["sketch"], "tent", options={"subset": int(size)}))["id"]] for size in ("8", "9")
    }
    few = asked(made, table("t", [{"label": "Tent", "cells": cells}], ["8", "9"], show="accuracy-curve"))
    assert axis_of(few) == "images in a subset"


def test_remarks_name_harm_falls_and_other_worlds(made):
    record = made.record(["sketch"], "lame", gain=-0.4)
    assert record["scores"]["sketch"]["right"] < record["scores"]["sketch"]["source_right"]
    made.write({**record, "fell_back": 2, "notes": ["not finite"], "skipped": {"sketch/a.jpg": "empty"}})
    other = made.record(["photo"], "lame", gain=0.4)
    made.write({**other, "environment": {**other["environment"], "torch": "2.11.0"}})
    planned = table(
        "t", [{"label": "LAME", "cells": {"sketch": [record["id"]], "photo": [other["id"]]}}], ["sketch", "photo"]
    )
    said = remarks(asked(made, planned))
    ours, plain = (100 * record["scores"]["sketch"][count] / 40 for count in ("right", "source_right"))
    assert f"Below the untouched network end: LAME on sketch ({ours:.1f} against {plain:.1f})." in said
    assert "LAME: 2 batches were answered by the untouched network: not finite." in said
    assert "Images that could not be read and are not counted (1): sketch/a.jpg." in said
    assert "The records come from more than one version of torch: 2.10.0 (1 record), 2.11.0 (1 record)." in said
    shares = [r["scores"][d]["right"] / 40 for r, d in ((record, "sketch"), (other, "photo"))]
    errors = [100 * (share * (1 - share) / 40) ** 0.5 for share in shares]
    single, mean = sum(errors) / 2, (errors[0] ** 2 + errors[1] ** 2) ** 0.5 / 2
    (chance,) = [text for text in said if text.startswith("One seed")]
    assert f"about {number(single)} points" in chance
    assert f"a mean by {number(mean)};" in chance
    assert len(said) == 5


def test_several_seeds_need_no_word_on_chance_and_weights_are_named_where_they_must_be(made):
    rows = [made.row("Tent", "tent")]
    assert not [text for text in remarks(asked(made, table("t", rows))) if text.startswith("One seed")]
    record = made.record(["sketch"], "tent")
    record["run"]["checkpoint"]["note"] = "weights of somebody; research only"
    planned = table("t", [{"label": "Tent", "cells": {"sketch": [made.write(record)["id"]]}}], ["sketch"])
    assert "These networks rest on weights of somebody; research only." in remarks(asked(made, planned))


def test_gains_are_over_the_same_networks(made):
    paper = {"table": "comparison", "backbone": "resnet18", "columns": {"mean": "PACS"}}
    rows = [made.row(label, method, seeds=(0,), paper=p) for label, method, p in
            (("DeepAll", "source", "deepall"), ("Tent", "tent", "tent"))]  # fmt: skip
    ask = asked(made, table("t", rows, paper=paper))
    facts = {(fact.row, fact.column): fact.value for fact in show(ask).facts}
    gain = facts["Tent", "mean"] - facts["DeepAll", "mean"]
    theirs = 80.59 - 79.44
    (said,) = [remark for remark in remarks(ask) if remark.startswith("Gain")]
    assert said == f"Gain over DeepAll, mean: Tent {signed(gain)} (paper {signed(theirs)})."


def swept(made):
    """A row that a sweep changes, by two values, over two domains; and one that it does not."""
    rates = {
        str(rate): [[made.write(made.record([domain], "tent", options={"lr": rate}))["id"] for domain in DOMAINS[:2]]]
        for rate in (0.1, 0.9)
    }
    same = [[made.write(made.record([domain], "adamixbn"))["id"] for domain in DOMAINS[:2]]]
    rows = [{"label": "Tent", "cells": rates}, {"label": "AdaMixBN", "cells": dict.fromkeys(rates, same)}]
    return asked(made, table("t", rows, ["0.1", "0.9"], mean=False, show="accuracy-curve"))


def test_the_same_domains_under_another_setting_are_not_counted_together(made):
    ask = swept(made)
    (grid,) = details_grid(ask)
    assert [line.label for line in grid.lines] == ["Tent, 0.1", "Tent, 0.9", "AdaMixBN"]
    assert [line.entries[0].text for line in grid.lines] == [f"{2 * made.images}"] * 3
    caption = confusion_figure(ask, ask.table.rows[0]).caption
    assert caption.startswith(("Tent, column 0.1:", "Tent, column 0.9:"))


def test_other_domains_are_counted_together(made):
    (grid,) = details_grid(asked(made, table("t", [made.row("Tent", "tent")])))
    assert [(line.label, line.entries[0].text) for line in grid.lines] == [("Tent", f"{4 * 3 * made.images}")]
