import json

import pytest

from tests.lab.experiments.pictures import make_checkpoint, make_pictures

SHORT = ("--root", "pictures", "--batches", "4", "--every", "2", "--probe", "3", "--batch-size", "4", "--output", "out")


@pytest.fixture
def checkpoint(tmp_path):
    make_pictures(tmp_path / "pictures")
    return make_checkpoint(tmp_path / "c.safetensors").name


def test_a_table_a_record_and_a_picture(program, checkpoint, tmp_path):
    words = ("stress", checkpoint, "folders", "--domain", "dusk", "--kind", "noise", "--kind", "shuffled", *SHORT)
    done = program(*words, "--option", "lr=10")
    assert done.returncode == 0, done.stderr
    assert "Source model:" in done.stdout
    for words_of_it in ("With the guard, hostile streams: ", "Without the guard, hostile streams: "):
        assert words_of_it in done.stdout
    record = json.loads((tmp_path / "out" / "stress.json").read_text())
    assert [(c["kind"], c["guard"]) for c in record["courses"]] == [
        (kind, guard) for kind in ("noise", "shuffled") for guard in (True, False)
    ]
    assert record["domain"] == "dusk"
    assert record["options"] == {"lr": 10, "seed": 0}
    assert record["courses"][0]["at"] == [2, 4]
    assert record["courses"][0]["trips"] == [1, 2, 3, 4]  # a step of that size is too far, every time
    assert (tmp_path / "out" / "stress.png").is_file()
    lines = done.stderr.splitlines()
    assert [line.partition(":")[0] for line in lines[:4]] == [
        f"{kind}, {guard} the guard" for kind in ("noise", "shuffled") for guard in ("with", "without")
    ]
    again = program(*words, "--option", "lr=10", "--json")
    assert [c["accuracy"] for c in json.loads(again.stdout)["courses"]] == [c["accuracy"] for c in record["courses"]]


def test_one_side_only_and_source_images_are_the_data_sets(program, checkpoint, tmp_path):
    words = ("stress", checkpoint, "folders", "--kind", "tiny", "--method", "eata", "--guard", *SHORT)
    done = program(*words, "--json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert [course["guard"] for course in record["courses"]] == [True]
    assert record["options"] == {"source_images": "<Tensor>"}
    assert record["most_points_below_source"]["no_guard"] is None


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("resnet20", "folders"), "No weights given"),
        (("c.safetensors", "folders", "--kind", "noisy"), "did you mean 'noise'"),
        (("c.safetensors", "folders", "--domain", "ink"), "no domain 'ink'"),
        (("c.safetensors", "folders", "--method", "domainadaptor-t"), "resets after each batch"),
    ],
)
def test_mistakes_are_explained(program, checkpoint, tmp_path, words, hint):
    done = program("stress", *words, *SHORT)
    assert done.returncode == 1
    assert hint in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
