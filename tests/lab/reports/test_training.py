import json
from io import BytesIO

from PIL import Image

from domainadaptor.lab.reports.figures.canvas import COLORS, drawn
from domainadaptor.lab.reports.training import draw, markdown, read_records, rows


def record(target, accuracy, seed=0, algorithm="erm", sources=("a", "b"), **more):
    return {
        "recipe": {
            "dataset": "pacs", "network": "cifar:resnet20", "size": 64, "algorithm": algorithm, "options": {},
            "select": "best", "norm": "batch", "sources": list(sources), "seed": seed,
        },
        "images": {"a": 1, "b": 1, "c": 1},
        "source_validation": {"accuracy": 90.0},
        "target_accuracy": {target: accuracy},
        "epochs": [{"seconds": 900}, {"seconds": 60}],  # a pause in the first
        "command": f"domainadaptor train pacs --algorithm {algorithm}",
        "note": "for research only",
        **more,
    }  # fmt: skip


RECORDS = [record("c", 50.0), record("c", 60.0, seed=1), record("b", 40.0, sources=("a", "c")),
           record("c", 70.0, algorithm="mldg"), record("b", 30.0, sources=("a",))]  # fmt: skip


def test_rows_gather_seeds_and_domains():
    found = rows(RECORDS)
    assert [row.how for row in found] == ["ERM", "MLDG", "ERM, a alone"]
    assert found[0].targets == {"b": [40.0], "c": [50.0, 60.0]}
    assert found[0].seeds == 2
    assert found[0].minutes == 2


def going_on(seed, weights, epochs=2):
    more = record("c", 65.0, algorithm="mldg", seed=seed)
    more["recipe"] |= {"weights": weights, "epochs": epochs}
    return more


def test_networks_that_go_on_from_others_say_so_and_from_what():
    start = "pacs-resnet20-64-erm-on-a+b-seed1-0123456789"
    begun = [entry | {"run": start} if entry["recipe"]["seed"] == 1 else entry for entry in RECORDS]
    found = rows([going_on(1, start), *begun])
    assert [row.how for row in found] == ["ERM", "MLDG", "ERM, a alone", "MLDG, 2 more epochs"]
    text = markdown(found)
    assert "go on from the network of the same target and seed" in text
    assert "ERM, seed 0: source validation 90.0, b 40.0, c 50.0, mean 45.0." in text
    assert "ERM, seed 1: source validation 90.0, c 60.0, mean 60.0." in text
    assert "of the same target and seed" not in markdown(rows(RECORDS))


def test_a_longer_training_of_the_same_kind_is_a_row_of_its_own_and_so_is_what_goes_on_from_it():
    short, long = (
        [record("c", 50.0 + seed, seed=seed) | {"run": f"pacs-resnet20-{epochs}-{seed}"} for seed in (0, 1)]
        for epochs in (6, 12)
    )
    for entries, epochs in ((short, 6), (long, 12)):
        for entry in entries:
            entry["recipe"] |= {"epochs": epochs, "lr": epochs / 100, "weights": "pretrained"}
    found = rows([*short, *long, going_on(0, "pacs-resnet20-12-0"), going_on(1, "pacs-resnet20-gone")])
    assert [row.how for row in found] == [
        "ERM, 12 epochs",
        "ERM, 6 epochs",
        "MLDG, 12 + 2 epochs",
        "MLDG, 2 more epochs",
    ]
    assert [row.begins for row in found] == [True, False, False, False]
    text = markdown(found)
    assert "ERM, 12 epochs, seed 1: source validation 90.0, c 51.0, mean 51.0." in text
    assert "ERM, 6 epochs, seed" not in text


def test_a_record_is_known_by_the_name_of_its_run(tmp_path):
    (tmp_path / "a-run").mkdir()
    (tmp_path / "a-run" / "record.json").write_text(json.dumps(RECORDS[0]))
    (tmp_path / "another-run.json").write_text(json.dumps(RECORDS[1]))
    assert {entry["run"] for entry in read_records(tmp_path, {})} == {"a-run", "another-run"}


def test_a_network_of_all_domains_is_a_row_without_targets(tmp_path):
    whole = record("c", 1.0, sources=("a", "b", "c")) | {"target_accuracy": {}}
    (tmp_path / "whole.json").write_text(json.dumps(whole))
    damaged = {}
    (row,) = rows(read_records(tmp_path, damaged))
    assert damaged == {}
    assert (row.targets, row.each_seed) == ({}, {0: {"source validation": 90.0}})


def test_the_table_has_means_deviations_and_commands():
    text = markdown(rows(RECORDS), drawn=True)
    assert "](figures/training.png)" in text
    assert "figures" not in markdown(rows(RECORDS), drawn=False)
    assert "### pacs, resnet20 at 64x64" in text
    assert "| ERM | 2 | 90.0 ± 0.0 | 40.0 | 55.0 ± 5.0 | 47.5 | 2.0 |" in text
    assert "| MLDG | 1 | 90.0 |  | 70.0 |  | 2.0 |" in text
    assert text.count("domainadaptor train pacs --algorithm mldg") == 1
    assert "For research only." in text


def test_records_are_read_and_drawn(tmp_path):
    for at, entry in enumerate(RECORDS):
        (tmp_path / f"{at}.json").write_text(json.dumps(entry))
    (tmp_path / "other.json").write_text("[1]")
    damaged = {}
    found = rows(read_records(tmp_path, damaged))
    assert [row.how for row in found] == ["ERM", "MLDG", "ERM, a alone"]
    assert damaged == {}
    with Image.open(BytesIO(drawn(lambda: draw(found)).png)) as picture:
        assert picture.width > 500


def test_what_is_no_record_is_named(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "broken.json").write_text("{")
    (tmp_path / "half.json").write_text(json.dumps({"recipe": {}, "target_accuracy": {}}))
    (tmp_path / "whole.json").write_text(json.dumps(RECORDS[0]))
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "of_another_kind.json").write_text("{")
    damaged = {}
    assert len(read_records(tmp_path, damaged)) == 1
    assert set(damaged) == {"deep/broken.json", "half.json"}
    assert "KeyError" in damaged["half.json"]


def test_the_colors_can_be_told_apart_by_everybody():
    assert set(COLORS) == set("#000000 #E69F00 #56B4E9 #009E73 #F0E442 #0072B2 #D55E00 #CC79A7".split())
