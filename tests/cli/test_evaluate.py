"""`domainadaptor evaluate` from the command line."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch

from domainadaptor.lab.networks.checkpoint import load_checkpoint
from domainadaptor.lab.records.store import Store
from tests.lab.experiments.pictures import make_checkpoint, make_pictures


@pytest.fixture
def base(tmp_path, monkeypatch):
    monkeypatch.setenv("DOMAINADAPTOR_CACHE", str(tmp_path / "cache"))
    make_pictures(tmp_path / "pictures")
    make_checkpoint(tmp_path / "mine.safetensors")
    return tmp_path


def arguments(base, *more):
    return [
        "evaluate",
        str(base / "mine.safetensors"),
        "folders",
        "--root",
        str(base / "pictures"),
        "--device",
        "cpu",
        *more,
    ]


def test_unseen_domains_are_tested_with_both_methods(program, base):
    result = program(*arguments(base, "--batch-size", "10", "--json"))
    assert result.returncode == 0, result.stderr
    records = json.loads(result.stdout)
    assert [(r["run"]["method"], list(r["scores"])) for r in records] == [
        ("source", ["night"]),
        ("auto", ["night"]),
    ]
    assert records[0]["scores"]["night"]["right"] == records[0]["scores"]["night"]["source_right"]


def test_the_table_fits_a_narrow_terminal(program, base):
    result = program(*arguments(base, "--method", "adamixbn"))
    assert result.returncode == 0, result.stderr
    assert "adamixbn" in result.stdout
    assert "night" in result.stdout


def test_predictions_that_look_worse_have_an_exit_code(program, base):
    words = arguments(base, "--method", "source", "--method", "adabn", "--batch-size", "1", "--output", base / "kept")
    for _ in range(2):  # a record says it too
        result = program(*words)
        assert result.returncode == 5
        assert (
            "the predictions of adabn on night may be worse than the source model's. A batch of 1 is too"
            in result.stderr
        )
        assert result.stderr.count("too small") == 1


def test_records_are_kept_and_found_again(program, base):
    kept = base / "results"
    first = program(*arguments(base, "--method", "tent", "--output", str(kept), "--json"))
    second = program(*arguments(base, "--method", "tent", "--output", str(kept), "--json"))
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout) == json.loads(second.stdout)
    with Store(kept, readonly=True) as store:
        assert len(store.runs()) == 1


def test_a_corrupt_record_is_reported_and_recomputed(program, base):
    words = arguments(base, "--method", "tent", "--output", str(base / "results"))
    program(*words)
    with Store(base / "results") as store:
        (name,) = store.runs()
        store._db.execute("UPDATE entries SET body = substr(body, 1, 99) WHERE kind = 'evaluation'")
    result = program(*words)
    assert result.returncode == 0
    assert f"Record {name} is corrupt and will be recomputed" in result.stderr


def test_a_record_of_a_method_with_another_default_is_made_again(program, base):
    words = arguments(base, "--method", "tent", "--output", str(base / "results"), "--json")
    (first,) = json.loads(program(*words).stdout)
    with Store(base / "results") as store:
        record = store.run(first["id"])
        store.write(record.model_copy(update={"defaults": {**record.defaults, "lr": 0.5}, "took": -1.0}))
    (again,) = json.loads(program(*words).stdout)
    assert again["defaults"] == first["defaults"]
    assert again["took"] > 0
    with Store(base / "results", readonly=True) as store:
        assert store.run(first["id"]).took == again["took"]


def test_a_protocol_over_several_domains(program, base):
    more = ["--target", "day", "--target", "night", "--protocol", "mixed-images", "--method", "tent", "--json"]
    result = program(*arguments(base, *more))
    (record,) = json.loads(result.stdout)
    assert set(record["scores"]) == {"day", "night"}
    assert record["run"]["protocol"] == "mixed-images"


def test_methods_that_look_at_source_images_get_them(program, base):
    result = program(*arguments(base, "--method", "eata", "--method", "adabn-source-and-test", "--json"))
    assert result.returncode == 0, result.stderr
    assert len(json.loads(result.stdout)) == 2


def test_the_command_of_a_record_repeats_it(program, base):
    import shlex

    more = ["--method", "tent", "--option", "lr=0.05", "--images", "12", "--order", "3", "--json"]
    (record,) = json.loads(program(*arguments(base, *more)).stdout)
    words = shlex.split(record["command"])[1:]
    (again,) = json.loads(program(*words, "--root", str(base / "pictures"), "--device", "cpu", "--json").stdout)
    assert again["scores"] == record["scores"]
    assert again["id"] == record["id"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--target", "nite"], "night"),
        (["--method", "tend"], "tent"),
        (["--protocol", "fewdata"], "few-data"),
        (["--method", "tent", "--option", "lrr=1"], "lr"),
        (["--option", "lr=1"], "name one of them, as in --option auto:lr=1"),
        (["--method", "domainadaptor-t", "--option", "domainadaptor-t:lr=x"], "lr='x': expected a finite number"),
        (["--measure", "distances"], "statistics-distances"),
        (["--data-option", "root=x"], "no option 'root'"),
        (["--data-option", "name=x"], "no option 'name'"),
        (["--data-option", "seed=x"], "seed='x': expected a whole number"),
    ],
)
def test_mistakes_are_explained(program, base, more, said):
    result = program(*arguments(base, *more))
    assert result.returncode == 1
    assert said in result.stderr


def test_a_network_without_weights_is_refused(program, base):
    result = program("evaluate", "resnet18", "folders", "--root", str(base / "pictures"))
    assert result.returncode == 1
    assert "--weights" in result.stderr


@pytest.fixture
def raw(base):
    """The weights of the checkpoint without what it knows, their outputs in another order."""
    tensors = load_checkpoint(base / "mine.safetensors").tensors
    head = {name: tensors[name][[2, 0, 1]] for name in ("linear.weight", "linear.bias")}
    torch.save({**tensors, **head}, base / "raw.pth")
    (base / "names.txt").write_text("owl\ncat\ndog\n")
    pictures = ["--root", str(base / "pictures"), "--device", "cpu", "--json", "--target", "night", "--method", "tent"]
    return ["evaluate", "resnet20", "folders", "--weights", "raw.pth", *pictures]


SAID = ["--size", "12", "--resize", "squash", "--classes", "names.txt"]


def test_raw_weights_are_scored_as_the_checkpoint_with_what_is_said_of_them(program, base, raw):
    import shlex

    (known,) = json.loads(program(*arguments(base, "--target", "night", "--method", "tent", "--json")).stdout)
    (record,) = json.loads(program(*raw, *SAID).stdout)
    assert (known["classes"], record["classes"]) == (["cat", "dog", "owl"], ["owl", "cat", "dog"])
    for score in known["scores"].values():
        for name in ("confusion", "source_confusion"):
            score[name] = [[score[name][row][column] for column in (2, 0, 1)] for row in (2, 0, 1)]
    assert record["scores"] == known["scores"]
    assert record["preprocessing"] == known["preprocessing"]
    assert record["run"]["raw"] == {"resize": "squash", "size": 12, "classes": ["owl", "cat", "dog"]}
    assert "raw.pth does not include preprocessing; mean, std: the default of cifar:resnet20" in record["notes"][0]
    words = shlex.split(record["command"])[1:]
    (again,) = json.loads(program(*words, "--root", str(base / "pictures"), "--device", "cpu", "--json").stdout)
    assert (again["id"], again["scores"]) == (record["id"], record["scores"])


def test_what_is_said_of_raw_weights_makes_another_record(program, raw):
    kinds = ([], SAID[:2], ["--mean", "0.49", "0.48", "0.45"], ["--std", "0.2", "0.2", "0.2"])
    records = [json.loads(program(*raw, *more).stdout)[0] for more in kinds]
    assert len({record["id"] for record in records}) == len(kinds)
    assert not records[0]["run"]["raw"]
    assert records[2]["preprocessing"]["mean"] == [0.49, 0.48, 0.45]


@pytest.mark.parametrize(
    "more", [SAID[2:4], SAID[4:], ["--crop-pct", "0.9"], ["--mean", "0", "0", "0"], ["--std", "1", "1", "1"]]
)
def test_a_checkpoint_is_told_nothing(program, base, raw, more):
    result = program(*arguments(base, *more))
    assert result.returncode == 1
    assert f"includes its preprocessing and classes: leave out {more[0]}" in result.stderr.replace("\n", " ")


def test_other_classes_are_refused(program, base):
    (base / "pictures" / "night" / "yak").mkdir()
    (base / "pictures" / "night" / "cat" / "0.png").rename(base / "pictures" / "night" / "yak" / "0.png")
    result = program(*arguments(base))
    assert result.returncode == 1
    assert "the network does not predict yak; it predicts cat, dog, owl" in result.stderr


def test_folders_with_some_of_the_networks_classes_are_matched_by_name(program, base):
    for domain in (base / "pictures").iterdir():
        shutil.rmtree(domain / "cat")
        (domain / "owl").rename(domain / "OWL")
    (record,) = json.loads(program(*arguments(base, "--target", "night", "--method", "source", "--json")).stdout)
    assert record["classes"] == ["cat", "dog", "owl"]
    images = [sum(row) for row in record["scores"]["night"]["confusion"]]
    assert images[0] == 0
    assert images[1] == images[2] > 0


def test_a_folder_in_place_of_a_data_set(program, base):
    (base / "pictures").rename(base / "cameras")
    words = [
        "evaluate",
        "mine.safetensors",
        "cameras",
        "--device",
        "cpu",
        "--method",
        "tent",
        "--target",
        "night",
        "--json",
    ]
    (record,) = json.loads(program(*words).stdout)
    named = ["evaluate", "mine.safetensors", "folders", "--root", "cameras", *words[3:]]
    (same,) = json.loads(program(*named).stdout)
    assert (record["run"], record["scores"]) == (same["run"], same["scores"])
    (single,) = json.loads(program("evaluate", "mine.safetensors", "cameras/night", *words[3:]).stdout)
    assert single["scores"] == record["scores"]
    refused = program(*words, "--root", "cameras")
    assert refused.returncode == 1
    assert "'cameras' is a folder, which is the data directory itself: leave out --root" in refused.stderr
    assert "did you mean 'pacs'" in program("evaluate", "mine.safetensors", "pasc").stderr


def test_lists_in_the_command_of_a_record_come_back_as_lists(program, base):
    import shlex

    from domainadaptor.lab.experiments.networks import LocatedNetwork
    from domainadaptor.lab.experiments.run_spec import RunSpec

    checkpoint = base / "mine.safetensors"
    cell = RunSpec("folders", ("night",), LocatedNetwork("mine", str(checkpoint)), "sar", {"skip": ["layer3", "bn1"]})
    words = shlex.split(cell.command())[1:]
    (record,) = json.loads(program(*words, "--root", str(base / "pictures"), "--json").stdout)
    assert record["run"]["options"] == {"skip": ["layer3", "bn1"]}


def test_the_command_of_a_measurement_repeats_it(program, base):
    import shlex

    more = ["--measure", "loss-curves", "--option", "scale=3.0", "--json"]
    (record,) = json.loads(program(*arguments(base, *more)).stdout)
    words = shlex.split(record["command"])[1:]
    (again,) = json.loads(program(*words, "--root", str(base / "pictures"), "--device", "cpu", "--json").stdout)
    assert again["id"] == record["id"]


@pytest.mark.parametrize("more", [["--target", "nite"], ["--method", "tend"], ["--source", "dya"]])
def test_nothing_runs_where_a_later_name_is_wrong(program, base, more):
    kept = base / "results"
    result = program(*arguments(base, "--target", "night", "--method", "source", "--output", str(kept), *more))
    assert result.returncode == 1
    assert not kept.exists()


def test_the_first_table_compares_methods_by_domain(program, base):
    words = arguments(base, "--method", "source", "--method", "tent", "--target", "night", "--target", "day")
    records = json.loads(program(*words, "--json").stdout)
    shown = [line.replace("│", " ").split() for line in program(*words).stdout.splitlines()]
    accuracy = {
        (record["run"]["method"], domain): 100 * score["right"] / score["images"]
        for record in records
        for domain, score in record["scores"].items()
    }
    means = []
    for domain in ("night", "day"):
        expected = [f"{accuracy[method, domain]:.1f}" for method in ("source", "tent")]
        assert [domain, *expected] in shown
    for method in ("source", "tent"):
        means.append(f"{(accuracy[method, 'night'] + accuracy[method, 'day']) / 2:.1f}")
    assert ["mean", *means] in shown


def test_a_method_from_a_file_in_the_current_folder(program, base, monkeypatch):
    monkeypatch.setattr("sys.path", list(sys.path))
    page = Path(__file__).parents[2] / "docs" / "building-blocks.md"
    (base / "mymethod.py").write_text(page.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0])
    own, module = "mymethod.py:momentum_mix", "mymethod:momentum_mix"
    words = ["--method", own, "--method", module, "--method", "source", "--option", f"{own}:keep=1.0", "--json"]
    done = program(*arguments(base, *words))
    assert done.returncode == 0, done.stderr
    only_source, mixed, source = json.loads(done.stdout)
    assert [record["run"]["options"] for record in (only_source, mixed)] == [{"keep": 1.0}, {}]
    assert only_source["scores"] == source["scores"]
    assert mixed["scores"] != source["scores"]
    assert "No such file" in program(*arguments(base, "--method", "absent.py:mix")).stderr


def test_more_methods_than_fit_side_by_side_are_rows(program, base):
    names = ["source", "adabn", "adamixbn", "domainadaptor-t", "adabn-source-and-test", "tent", "eta", "slr", "tsd"]
    words = [word for name in names for word in ("--method", name)]
    done = program(*arguments(base, *words, "--target", "night", "--target", "day"))
    shown = [line.replace("│", " ").split() for line in done.stdout.splitlines()]
    assert [line[0] for line in shown if len(line) == 4] == names[1:]  # after "source model", of two words
    assert ["┃", "method", "┃", "mean", "┃", "night", "┃", "day", "┃"] in shown


def test_what_is_named_twice_runs_once(program, base):
    twice = ["--target", "night", "--method", "source"] * 2
    assert len(json.loads(program(*arguments(base, *twice, "--json")).stdout)) == 1
