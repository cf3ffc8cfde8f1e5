import json

import pytest
from PIL import Image

from domainadaptor.errors import BadFile
from domainadaptor.reports.training import draw, markdown, read_records, rows


def record(target, accuracy, seed=0, algorithm="erm", sources=("a", "b"), **more):
    return {
        "recipe": {
            "dataset": "pacs", "network": "cifar:resnet20", "size": 64, "algorithm": algorithm, "options": {},
            "select": "best", "norm": "batch", "sources": list(sources), "seed": seed,
        },
        "images": {"a": 1, "b": 1, "c": 1},
        "source_validation": {"accuracy": 90.0},
        "target_accuracy": {target: accuracy},
        "seconds": 120,
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


def test_the_table_has_means_deviations_and_commands():
    text = markdown(rows(RECORDS))
    assert "### pacs, resnet20 at 64x64" in text
    assert "| ERM | 2 | 90.0 ± 0.0 | 40.0 | 55.0 ± 5.0 | 47.5 | 2.0 |" in text
    assert "| MLDG | 1 | 90.0 |  | 70.0 |  | 2.0 |" in text
    assert text.count("domainadaptor train pacs --algorithm mldg") == 1
    assert "For research only." in text


def test_records_are_read_and_drawn(tmp_path):
    for at, entry in enumerate(RECORDS):
        (tmp_path / f"{at}.json").write_text(json.dumps(entry))
    (tmp_path / "other.json").write_text("[1]")
    found = rows(read_records(tmp_path))
    draw(found, tmp_path / "figure.png")
    with Image.open(tmp_path / "figure.png") as picture:
        assert picture.width > 500


def test_what_is_no_record_is_explained(tmp_path):
    with pytest.raises(BadFile, match="no records"):
        read_records(tmp_path)
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(BadFile, match=r"broken\.json"):
        read_records(tmp_path)
