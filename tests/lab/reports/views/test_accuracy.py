"""The bar chart of methods: accuracies with their standard errors."""

import math
import statistics

import pytest

from tests.lab.reports.folder import DOMAINS, shown, table


def bars(view):
    (figure,) = view.figures
    return figure.draw.args[0]


def test_bars_are_means_with_the_error_of_images_and_seeds(made):
    rows = [made.row("DeepAll", "source"), made.row("Tent", "tent")]
    view = shown(made, table("t", rows))
    (_, source, *_), (label, value, error, text) = bars(view)
    assert label == "Tent"
    assert view.figures[0].draw.args[1] == source
    scores = [[made.record([d], "tent", seed).scores[d] for d in DOMAINS] for seed in range(3)]
    means = [statistics.fmean(100 * s.right / s.images for s in own) for own in scores]
    assert value == pytest.approx(statistics.fmean(means))
    images = [100 * math.sqrt(p * (1 - p) / s.images) for s in scores[0] for p in [s.right / s.images]]
    of_images, of_seeds = math.sqrt(sum(e * e for e in images)) / len(images), statistics.stdev(means) / math.sqrt(3)
    assert error == pytest.approx(math.sqrt(of_images**2 + of_seeds**2))
    assert text == f"{value:.1f} ± {error:.1f}"


def test_a_single_column_needs_no_mean_and_missing_rows_have_no_bar(made):
    rows = [
        made.row("SLR", "slr", ["sketch"], keep=False),
        made.row("Tent", "tent", ["sketch"], seeds=(0,)),
        made.row("AdaBN", "adabn", ["sketch"], seeds=(0,)),
    ]
    view = shown(made, table("t", rows, ["sketch"], mean=False))
    assert [label for label, *_ in bars(view)] == ["Tent", "AdaBN"]
    score = made.record(["sketch"], "tent", 0).scores["sketch"]
    share = score.right / score.images
    assert bars(view)[0][2] == pytest.approx(100 * math.sqrt(share * (1 - share) / score.images))
    assert not shown(made, table("t", rows[:2], ["sketch"], mean=False)).figures, "one bar says no more than the table"
    assert not shown(made, table("t", rows[1:], ["sketch", "photo"], mean=False)).figures, "there is no single number"
