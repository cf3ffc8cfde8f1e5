"""Records: what identifies them, and what is refused when they are read."""

import json
import math

import pytest
from pydantic import ValidationError

from domainadaptor.lab.records.measurements import ClassifierNorms, StatisticsVariance
from domainadaptor.lab.records.store import build, parse
from domainadaptor.lab.records.training import read_training
from tests.lab.records.samples import (
    CHECKPOINT,
    evaluation,
    manifest,
    measurement,
    plan,
    score,
    settings,
    training,
)


@pytest.mark.parametrize("make", [evaluation, measurement, plan, training, manifest], ids=lambda make: make.__name__)
def test_what_is_written_is_read(make):
    record = make()
    assert parse(record.to_json()) == record
    assert "\n" not in record.to_json()


def test_one_and_one_point_zero_are_the_same_run():
    assert settings(options={"lr": 1, "list": [2.0]}).id == settings(options={"lr": 1.0, "list": [2]}).id
    assert settings(options={"lr": 1}).id != settings(options={"lr": True}).id
    assert settings(options={"lr": 1}).id != settings(options={"lr": 1.5}).id


def test_labels_do_not_identify_a_run_and_everything_else_does():
    same = {"name": "other", "command": "domainadaptor train", "note": "a note"}
    assert settings(checkpoint=CHECKPOINT.model_copy(update=same)).id == settings().id
    changes = [
        {"dataset": "pacs"}, {"data_options": {"seed": 1}}, {"data": "other"}, {"domains": ("dusk",)},
        {"checkpoint": CHECKPOINT.model_copy(update={"sha256": "01"})}, {"validation": ("night",)},
        {"raw": {"size": 3}}, {"method": "eata"}, {"options": {"lr": 0.1}}, {"protocol": "continual"},
        {"protocol_options": {"rounds": 2}}, {"batch_size": 1}, {"images": 3}, {"order": 1}, {"seed": 1},
        {"sources": ("day",)}, {"measure": "loss-curves"},
    ]  # fmt: skip
    assert len({settings().id, *(settings(**change).id for change in changes)}) == len(changes) + 1


def test_the_ids_of_published_records_do_not_change():
    """Computed by the formula of the docstring, by hand: a hash of sorted JSON without the labels."""
    import hashlib

    known = {"sha256": "00", "network": "resnet20", "size": 12, "sources": ["day"], "seed": 0}
    run = {
        "dataset": "folders", "data_options": {}, "data": "fingerprint", "domains": ["night"], "checkpoint": known,
        "method": "tent", "options": {"lr": 0.5}, "protocol": "leave-one-out", "protocol_options": {},
        "batch_size": 64, "images": None, "order": 0, "seed": 0, "sources": [],
    }  # fmt: skip
    text = json.dumps(run, sort_keys=True)
    assert settings(options={"lr": 0.5}).id == hashlib.sha256(text.encode()).hexdigest()[:16]
    for name in ("method", "protocol", "protocol_options", "sources"):
        del run[name]
    text = json.dumps(run | {"measure": "loss-curves", "options": {}}, sort_keys=True)
    assert settings(method="", protocol="", measure="loss-curves").id == hashlib.sha256(text.encode()).hexdigest()[:16]


def spoiled(record, *path, value):
    content = json.loads(record.to_json())
    inner = content
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return json.dumps(content)


@pytest.mark.parametrize(
    ("record", "path", "value", "said"),
    [
        (evaluation(), ["kind"], "evaluatoin", "evaluatoin"),
        (evaluation(), ["format"], 1, "format"),
        (evaluation(), ["unknown"], 1, "unknown"),
        (evaluation(), ["run", "batch_size"], "64", "batch_size"),
        (evaluation(), ["scores", "night", "right"], 5, "larger than images"),
        (evaluation(), ["scores", "night", "right"], 2, "contradicts"),
        (evaluation(), ["scores", "night", "images"], -1, "images"),
        (evaluation(), ["scores", "night", "confusion"], [[4]], "confusion"),
        (evaluation(), ["scores", "night", "calibration"], [[4, 1e300, 3]], "calibration"),
        (evaluation(), ["scores"], {}, "scores"),
        (evaluation(), ["run", "method"], "", "method"),
        (measurement(), ["values"], {}, "variance"),
        (measurement(), ["values", "variance"], "1.5", "variance"),
        (measurement(), ["run", "measure"], "", "measurement"),
        (plan(), ["name"], "index", "index"),
        (plan(), ["name"], "a/b", "a/b"),
        (plan(), ["tables"], [{}], "tables"),
        (training(), ["recipe", "lr"], None, "lr"),
        (manifest(), ["domains", "night", "images"], 0.5, "images"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, str | list) else "",
)
def test_what_is_not_valid_is_refused_with_its_place(record, path, value, said):
    with pytest.raises(ValueError, match=said):
        parse(spoiled(record, *path, value=value))


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", "{" * 10_000, '{"kind": ', "\ud800"])
def test_what_is_no_record_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011  (any reason is good)
        parse(text)


def test_numbers_that_are_not_finite_are_refused():
    with pytest.raises(ValidationError, match="finite"):
        evaluation(memory=math.nan)
    with pytest.raises(ValueError, match="memory"):
        build(evaluation().model_dump(mode="json") | {"memory": math.inf})


def test_a_failed_run_has_a_reason_and_no_scores():
    failed = evaluation(failed="no memory", scores={}, seconds=None)
    assert parse(failed.to_json()).failed == "no memory"


def test_values_are_read_as_their_model():
    assert measurement().read(StatisticsVariance).layers == {"bn1": 1.5}
    with pytest.raises(ValidationError):
        measurement().read(ClassifierNorms)


def test_values_of_a_measurement_that_is_not_built_in_are_kept():
    record = measurement("my-own", {"anything": [1, {"a": None}]})
    assert parse(record.to_json()).values == {"anything": [1, {"a": None}]}


def test_scores_of_two_classes_need_two_classes():
    with pytest.raises(ValidationError, match="3 classes"):
        evaluation(classes=("a", "b", "c"), scores={"night": score()})


def test_a_training_record_is_named_by_its_folder(tmp_path):
    content = training().model_dump(mode="json", exclude={"kind", "format", "name"})
    (tmp_path / "record.json").write_text(json.dumps(content))
    assert read_training(tmp_path / "record.json").name == tmp_path.name
    (tmp_path / "other.json").write_text(json.dumps(content))
    assert read_training(tmp_path / "other.json").name == "other"
    (tmp_path / "record.json").write_text("{}")
    with pytest.raises(ValueError, match="recipe"):
        read_training(tmp_path / "record.json")
    with pytest.raises(ValueError, match="No such file"):
        read_training(tmp_path / "none.json")
