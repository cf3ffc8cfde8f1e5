import pytest

from tests.lab.reports.folder import LAYERS, shown, table, texts


def test_alpha_has_the_least_squares_line(made):
    row = made.row("AdaMixBN", "adamixbn", ["sketch"], seeds=(0, 1))
    found = shown(made, table("t", [row], ["sketch"], show="alpha"))
    records = [made.record(["sketch"], "adamixbn", seed).alpha for seed in (0, 1)]
    values = [(records[0][layer] + records[1][layer]) / 2 for layer in LAYERS]
    depth = [at / (len(LAYERS) - 1) for at in range(len(LAYERS))]
    middle, mean = sum(depth) / len(depth), sum(values) / len(values)
    slope = sum((d - middle) * (v - mean) for d, v in zip(depth, values, strict=True)) / sum(
        (d - middle) ** 2 for d in depth
    )
    line = texts(found.tables[0])["sketch"]
    assert line["slope over depth"] == f"{slope:.2f}".replace("-", "−")
    assert line["mean"] == f"{mean:.2f}"
    assert [number.value for number in found.numbers] == pytest.approx(values)
    assert len(found.figures[0].draw().axes) == 1


def test_a_method_that_mixes_nothing_has_no_alpha(made):
    assert "no alpha" in shown(made, table("t", [made.row("Tent", "tent")], show="alpha")).problem
