import json

import pytest

from domainadaptor.errors import BadFile
from domainadaptor.lab.reports.records import checksum, read_results
from tests.lab.reports import folder
from tests.lab.reports.folder import Folder


@pytest.fixture
def made(tmp_path):
    return Folder(tmp_path, images=32)


def rewrite(made, record, whole=True):
    """Another content under the same name, with a sum that fits it or the old one."""
    changed = {**record, "checksum": folder.checksum({k: v for k, v in record.items() if k != "checksum"})}
    (made.path / "records" / f"{record['id']}.json").write_text(json.dumps(changed if whole else record))


def test_whole_records_and_plans_are_read(made, tmp_path):
    ids, _ = made.cell("sketch", "tent")
    made.plan("comparison", [folder.table("PACS", [made.row("Tent", "tent")])])
    results = read_results(tmp_path)
    assert not results.damaged
    assert set(ids) <= set(results.records)
    (plan,) = results.plans
    assert [wanted.id for (wanted,) in plan.tables[0].rows[0].cells["sketch"]] == ids


def test_the_sum_is_that_of_sorted_json():
    assert checksum({"b": 1, "a": [2.5, "é"], "checksum": "x"}) == folder.checksum({"a": [2.5, "é"], "b": 1})


def spoil_sum(record):
    record["scores"]["sketch"]["right"] += 1


def other_kind(record):
    record["kind"] = "evaluashun"


def other_format(record):
    record["format"] = 2


def impossible_count(record):
    record["scores"]["sketch"]["right"] = record["scores"]["sketch"]["images"] + 1


def other_confusion(record):
    record["scores"]["sketch"]["confusion"][0][1] += 1


def no_scores(record):
    del record["scores"]


def half_a_picture(record):
    record["scores"]["sketch"]["examples"][0]["label"] = 99


def words_for_numbers(record):
    record["seconds"]["plain"] = "fast"


@pytest.mark.parametrize(
    ("spoil", "whole", "said"),
    [
        (spoil_sum, False, "checksum"),
        (other_kind, True, "evaluashun"),
        (other_format, True, "format 1"),
        (impossible_count, True, "right"),
        (other_confusion, True, "confusion"),
        (no_scores, True, "scores"),
        (half_a_picture, True, "examples"),
        (words_for_numbers, True, "seconds"),
    ],
)
def test_a_damaged_record_is_named_and_the_others_are_read(made, tmp_path, spoil, whole, said):
    good, bad = (made.write(made.record(["sketch"], "tent", seed)) for seed in (0, 1))
    spoil(bad)
    rewrite(made, bad, whole)
    results = read_results(tmp_path)
    assert list(results.records) == [good["id"]]
    assert said in results.damaged[f"records/{bad['id']}.json"]


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "no JSON"), ("[1]", "object"), ('{"kind": NaN}', "NaN"), ("\udcff", "UTF-8"), ("[" * 100_000, "nested")],
)
def test_a_file_that_is_no_record_is_named(made, tmp_path, text, said):
    (tmp_path / "records" / "x.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert said in read_results(tmp_path).damaged["records/x.json"]


def test_a_record_under_another_name_is_damaged(made, tmp_path):
    record = made.write(made.record(["sketch"], "tent"))
    (tmp_path / "records" / f"{record['id']}.json").rename(tmp_path / "records" / "other.json")
    assert record["id"] in read_results(tmp_path).damaged["records/other.json"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "../out"}, "name"),
        ({"tables": 3}, "tables"),
        ({"remarks": "one"}, "remarks"),
        ({"tables": [folder.table("t", [{"label": "x", "cells": {"sketch": "id"}}])]}, "cells"),
        ({"tables": [folder.table("t", [{"label": "x", "cells": {}, "value": "during"}])]}, "value"),
    ],
)
def test_a_damaged_plan_is_named(made, tmp_path, change, said):
    made.plan("good", [])
    plan = made.plan("bad", [])
    (tmp_path / "plans" / "bad.json").write_text(json.dumps({**plan, **change}))
    results = read_results(tmp_path)
    assert [plan.name for plan in results.plans] == ["good"]
    assert said in results.damaged["plans/bad.json"]


def test_experiments_come_in_the_papers_order(made, tmp_path):
    for name in ("time", "alpha", "comparison"):
        paper = None if name == "alpha" else {"table": name, "backbone": "resnet18"}
        made.plan(name, [folder.table(name, [], paper=paper)])
    assert [plan.name for plan in read_results(tmp_path).plans] == ["comparison", "time", "alpha"]


def test_no_folder_is_an_error(tmp_path):
    with pytest.raises(BadFile, match="nowhere"):
        read_results(tmp_path / "nowhere")
