"""Grids: each cell once, whatever happens in between; records that say all; measurements."""

import json
import multiprocessing
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import domainadaptor as da
from domainadaptor.data.open import open_dataset
from domainadaptor.data.preprocessing import squashed
from domainadaptor.errors import BadFile
from domainadaptor.experiments import grid as grids
from domainadaptor.experiments.cell import Cell, id_of
from domainadaptor.experiments.execute import Workshop
from domainadaptor.experiments.grid import Grid, Watcher, kept, run_all
from domainadaptor.experiments.networks import Located
from domainadaptor.experiments.spec import read_experiment
from domainadaptor.experiments.store import Store
from domainadaptor.networks.checkpoint import make_network
from tests.experiments.pictures import make_checkpoint, make_pictures

TEXT = """
title = "Small"
[networks.mine]
checkpoint = "{base}/mine.safetensors"
[networks.absent]
train = {{ dataset = "pacs", network = "resnet20" }}
[rows."untouched"]
method = "source"
[rows."Tent"]
method = "tent"
lr = 0.05
predict = "after"
[[table]]
title = "One"
dataset = "folders"
network = "mine"
domains = ["night", "dusk"]
batch_size = 10
"""

SILENT = Watcher(lambda *_: None, lambda _: None, lambda *_: None)


@pytest.fixture
def base(tmp_path):
    make_pictures(tmp_path / "pictures")
    make_checkpoint(tmp_path / "mine.safetensors")
    return tmp_path


def grid_of(base, text=TEXT, root="pictures"):
    path = base / "small.toml"
    path.write_text(text.format(base=base))
    workshop = Workshop(base / root, base / "images", torch.device("cpu"))
    return Grid(read_experiment(path, base / "runs", dataset=workshop.dataset), workshop)


def records_of(store):
    return {path.stem: json.loads(path.read_text()) for path in (store.folder / "records").glob("*.json")}


def test_a_record_for_each_cell_and_a_plan_that_names_them(base):
    store = Store(base / "results")
    assert run_all(grid_of(base), store, SILENT) == {}
    records = records_of(store)
    plan = json.loads((base / "results" / "plans" / "small.json").read_text())
    named = {name for row in plan["tables"][0]["rows"] for cell in row["cells"].values() for name in cell}
    assert named == set(records)
    assert len(records) == 4
    for name, record in records.items():
        assert id_of(record["run"]) == record["id"] == name
        assert record["run"]["checkpoint"]["sources"] == ["day", "dusk"]
        assert record["environment"]["torch"] == torch.__version__


def test_what_the_data_held_lies_beside_the_records(base):
    store = Store(base / "results")
    run_all(grid_of(base), store, SILENT)
    (path,) = (base / "results" / "data").glob("*.json")
    manifest = json.loads(path.read_text())
    assert {record["run"]["data"] for record in records_of(store).values()} == {path.stem} == {manifest["fingerprint"]}
    assert manifest["domains"]["night"]["classes"] == {"cat": 8, "dog": 8, "owl": 8}
    assert sum(manifest["domains"]["night"]["parts"].values()) == 24
    digests = {name: domain["sha256"] for name, domain in manifest["domains"].items()}
    (base / "pictures" / "day" / "cat" / "0.png").unlink()
    changed = open_dataset("folders", base / "pictures").manifest()
    assert [name for name, domain in changed["domains"].items() if domain["sha256"] != digests[name]] == ["day"]


def test_the_numbers_are_those_of_adapt(base):
    store = Store(base / "results")
    grid = grid_of(base)
    run_all(grid, store, SILENT)
    place = next(place for place in grid.places if (place.row, place.column) == ("Tent", "night"))
    record = store.read(place.id)
    opened = grid.workshop.open(place.cell.network)
    test, segments = grid.workshop.stream(place.cell, opened)
    adaptor = da.adapt(opened.network, "tent", lr=0.05, predict="after")
    right = sum(
        int((adaptor(pixels).argmax(1) == torch.tensor([item.label for item in items])).sum())
        for _, items, pixels in test.batches(segments)
    )
    assert record["scores"]["night"]["right"] == right
    assert record["scores"]["night"]["images"] == 24


def test_a_domain_that_was_trained_on_gives_its_validation_images(base):
    store = Store(base / "results")
    grid = grid_of(base)
    run_all(grid, store, SILENT)
    place = next(place for place in grid.places if place.column == "dusk")
    record = store.read(place.id)
    assert record["images"]["dusk"] < 24
    assert any("dusk is a source" in note for note in record["notes"])


def test_what_is_done_is_not_run_again(base, monkeypatch):
    store = Store(base / "results")
    run_all(grid_of(base), store, SILENT)
    before = {name: (base / "results" / "records" / f"{name}.json").stat().st_mtime_ns for name in records_of(store)}
    monkeypatch.setattr(Workshop, "measure", lambda *_: pytest.fail("a cell was run again"))
    run_all(grid_of(base), store, SILENT)
    after = {name: (base / "results" / "records" / f"{name}.json").stat().st_mtime_ns for name in records_of(store)}
    assert before == after


def test_a_method_with_another_default_is_run_again_and_only_it(base, monkeypatch):
    store = Store(base / "results")
    run_all(grid_of(base), store, SILENT)
    was = da.options_of
    # A new option is no other method: those records stay.
    monkeypatch.setattr(da, "options_of", lambda name: was(name) | {"brand_new": 1} | {"lr": 1.0})  # lr is in the row
    ran = []
    watcher = Watcher(lambda cell, *_: ran.append(cell.method), lambda _: None, lambda *_: None)
    run_all(grid_of(base), store, watcher)
    assert ran == []
    changed = {"tent": {"momentum": 0.5}}
    monkeypatch.setattr(da, "options_of", lambda name: was(name) | changed.get(name, {}))
    run_all(grid_of(base), store, watcher)
    assert ran == ["tent", "tent"]
    run_all(grid_of(base), store, watcher)
    assert ran == ["tent", "tent"]


def test_interrupted_anywhere_it_goes_on_and_ends_the_same(base, monkeypatch):
    whole, parts = Store(base / "whole"), Store(base / "parts")
    run_all(grid_of(base), whole, SILENT)
    measure = Workshop.measure
    ran = []

    def stop_after_one(self, cell, progress):
        if len(ran) % 2 == 1:
            ran.append(None)
            raise KeyboardInterrupt
        ran.append(cell)
        return measure(self, cell, progress)

    monkeypatch.setattr(Workshop, "measure", stop_after_one)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            run_all(grid_of(base), parts, SILENT)
    run_all(grid_of(base), parts, SILENT)
    assert sum(cell is not None for cell in ran) == 4
    first, second = records_of(whole), records_of(parts)
    assert first.keys() == second.keys()
    for name in first:
        assert first[name]["scores"] == second[name]["scores"]


def test_a_cell_that_fails_is_recorded_and_the_rest_goes_on(base, monkeypatch):
    measure = Workshop.measure

    def fail_for_tent(self, cell, progress):
        if cell.method == "tent" and cell.domains == ("night",):
            raise RuntimeError("out of memory\nand more")
        return measure(self, cell, progress)

    store = Store(base / "results")
    with monkeypatch.context() as patched:
        patched.setattr(Workshop, "measure", fail_for_tent)
        failed = run_all(grid_of(base), store, SILENT)
    assert list(failed.values()) == ["RuntimeError: out of memory"]
    assert sum("failed" in record for record in records_of(store).values()) == 1
    assert run_all(grid_of(base), store, SILENT) == {}
    assert not any("failed" in record for record in records_of(store).values())


@pytest.mark.parametrize("spoil", [KeyError("odd"), "nan"], ids=["any error", "a number that cannot be written"])
def test_whatever_a_cell_does_the_rest_goes_on(base, monkeypatch, spoil):
    measure = Workshop.measure

    def odd(self, cell, progress):
        if cell.method == "source":
            if isinstance(spoil, KeyError):
                raise spoil
            return measure(self, cell, progress) | {"memory": float("nan")}
        return measure(self, cell, progress)

    monkeypatch.setattr(Workshop, "measure", odd)
    store = Store(base / "results")
    assert len(run_all(grid_of(base), store, SILENT)) == 2
    assert sum("failed" in record for record in records_of(store).values()) == 2
    assert len(records_of(store)) == 4


def test_a_cell_that_another_process_tried_in_vain_meanwhile_is_left_to_the_next_run(base, monkeypatch):
    store, other = Store(base / "results"), Store(base / "results")
    grid = grid_of(base)
    _, second, *_ = grid.runnable()
    measure = Workshop.measure
    ran = []

    def meanwhile(self, cell, progress):
        ran.append(cell)
        if len(ran) == 1:  # the other process fails at the next cell
            other.write(grids._attempt(grid.runnable()[second], second, Failing(self), SILENT))
        return measure(self, cell, progress)

    class Failing:
        def __init__(self, workshop):
            self.run_of, self.device = workshop.run_of, workshop.device

        def measure(self, *_):
            raise RuntimeError("no memory")

    monkeypatch.setattr(Workshop, "measure", meanwhile)
    assert run_all(grid, store, SILENT) == {second: "RuntimeError: no memory"}
    assert len(ran) == 3
    assert run_all(grid_of(base), store, SILENT) == {}
    assert len(ran) == 4


def test_the_same_images_in_a_folder_of_another_name_are_sources_all_the_same(base):
    train = open_dataset("folders", base / "pictures")
    make_checkpoint(base / "mine.safetensors", recipe={"data": train.fingerprint()})
    shutil.copytree(base / "pictures", base / "renamed")
    records = []
    for name in ("pictures", "renamed"):
        grid = grid_of(base, root=name)
        store = Store(base / f"results-{name}")
        run_all(grid, store, SILENT)
        records.append(records_of(store))
    assert records[0].keys() == records[1].keys()
    for name, record in records[0].items():
        seen = [domain for domain in record["run"]["domains"] if domain == "dusk"]
        assert record["run"].get("validation", []) == seen
        assert record["images"] == records[1][name]["images"]
        assert bool(record.get("cautions")) == bool(seen)


def test_other_images_under_the_name_of_a_source_are_tested_with_a_caution(base):
    make_checkpoint(base / "mine.safetensors", dataset="elsewhere")
    store = Store(base / "results")
    run_all(grid_of(base), store, SILENT)
    for record in records_of(store).values():
        assert "validation" not in record["run"]
        assert sum(record["images"].values()) == 24
        cautions = record.get("cautions", [])
        assert ["if they are the same images" in text for text in cautions] == [True] * ("dusk" in record["images"])


def test_a_domain_gives_the_same_images_whatever_is_beside_it(base):
    workshop = Workshop(base / "pictures", None, torch.device("cpu"))
    located = Located("mine", str(base / "mine.safetensors"), base / "mine.safetensors")
    drawn = []
    for domains in (("night",), ("day", "night")):
        cell = Cell("folders", domains, located, protocol="continual", images=7)
        _, segments = workshop.stream(cell, workshop.open(located))
        drawn.append([item for batch in segments[-1].batches for item in batch])
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == 7


def test_a_record_has_the_defaults_of_its_protocol_and_skips_only_what_it_met(base):
    (base / "pictures" / "night" / "cat" / "broken.png").write_bytes(b"no picture")
    workshop = Workshop(base / "pictures", base / "images", torch.device("cpu"))
    located = Located("mine", str(base / "mine.safetensors"), base / "mine.safetensors")
    few = workshop.measure(Cell("folders", ("night",), located, protocol="few-data"))
    assert few["defaults"]["few-data subset"] == 64
    assert list(few["skipped"]) == ["night/cat/broken.png"]
    whole = [workshop.measure(Cell("folders", ("night",), located, images=4, order=order)) for order in range(4)]
    met = [bool(record["skipped"]) for record in whole]
    assert [record["images"]["night"] for record in whole] == [3 if broken else 4 for broken in met]
    assert not all(met)


def test_cells_that_cannot_run_any_more_keep_their_records_in_the_plan(base):
    store = Store(base / "results")
    run_all(grid_of(base), store, SILENT)
    before = store.read_plan("small")
    (base / "mine.safetensors").rename(base / "gone.safetensors")
    grid = grid_of(base)
    assert not grid.runnable()
    grid.write_plan(store)
    after = store.read_plan("small")
    assert [row["cells"] for row in after["tables"][0]["rows"]] == [row["cells"] for row in before["tables"][0]["rows"]]
    changed = grid_of(base, TEXT.replace("lr = 0.05", "lr = 0.06"))
    changed.write_plan(store)
    rows = {row["label"]: row["cells"] for row in store.read_plan("small")["tables"][0]["rows"]}
    assert rows["untouched"] == before["tables"][0]["rows"][0]["cells"]
    assert rows["Tent"] == {"night": [None], "dusk": [None]}, "of another rate there is no record"


def test_outputs_without_names_are_taken_in_the_order_of_the_classes(base):
    torch.manual_seed(0)
    torch.save(make_network("resnet20", 3, head_bias=True, norm="batch").state_dict(), base / "plain.pth")
    workshop = Workshop(base / "pictures", None, torch.device("cpu"))
    located = Located("plain", "cifar:resnet20", weights=str(base / "plain.pth"))
    record = workshop.measure(Cell("folders", ("night",), located))
    assert record["images"] == {"night": 24}
    assert ["cat, dog, owl" in text for text in record["cautions"]] == [True]


def test_a_checkpoint_without_its_record_says_how_it_was_trained(base):
    options = {"tasks": ("rotation",), "weight": 0.5}
    recipe = {"dataset": "pictures", "sources": ("day", "dusk"), "data": "x", "network": "cifar:resnet20",
              "epochs": 3, "batch_size": 128, "options": options}  # fmt: skip
    make_checkpoint(base / "mine.safetensors", recipe=recipe)
    workshop = Workshop(base / "pictures", None, torch.device("cpu"))
    located = Located("mine", str(base / "mine.safetensors"), base / "mine.safetensors")
    command = workshop.run_of(Cell("folders", ("night",), located))["checkpoint"]["command"]
    assert command == (
        "domainadaptor train folders --network cifar:resnet20 --epochs 3 --task rotation --option weight=0.5 --seed 0 "
        "--source day --source dusk"
    )


def test_domains_that_are_not_there_are_said_before_anything_runs(base):
    text = TEXT.replace('"night", "dusk"', '"nite", "dusk"') + 'sources = ["dya"]\n'
    with pytest.raises(BadFile) as raised:
        grid_of(base, text)
    for part in ("'nite'", "night", "'dya'", "day"):
        assert part in str(raised.value)


def test_other_options_of_a_data_set_are_other_images(base):
    workshop = Workshop(base / "pictures" / "night", None, torch.device("cpu"))
    made = [
        Cell("corrupted", ("gaussian_noise",), Located("mine", "mine"), data_options={"size": 12, "seed": seed})
        for seed in (0, 1)
    ]
    pictures = [workshop._pictures_of(cell, "gaussian_noise", squashed(12)).take([0])[0] for cell in made]
    assert not torch.equal(*pictures)


def test_a_network_that_is_replaced_meanwhile_is_not_taken_for_the_first(base):
    make_checkpoint(base / "more.safetensors")
    text = TEXT.replace(
        "[networks.absent]", '[networks.more]\ncheckpoint = "{base}/more.safetensors"\n[networks.absent]'
    )
    grid = grid_of(
        base, text.replace('[rows."Tent"]', '[rows."other"]\nmethod = "adabn"\nnetwork = "more"\n[rows."Tent"]')
    )
    make_checkpoint(base / "mine.safetensors", sources=("day",))
    failed = run_all(grid, Store(base / "results"), SILENT)
    assert len(failed) == 4
    assert all("replaced meanwhile" in why for why in failed.values())


@pytest.mark.parametrize("text", ["{", "[]"])
def test_another_file_called_record_does_no_harm(base, text):
    (base / "record.json").write_text(text)
    assert len(grid_of(base).runnable()) == 4


def test_every_network_that_is_missing_is_named(base):
    text = TEXT.replace("mine.safetensors", "{{target}}-{{seed}}.safetensors")
    grid = grid_of(base, text + "seeds = [0, 1]\n")
    said = " ".join(grid.missing().values())
    assert all(f"{target}-{seed}.safetensors" in said for target in ("night", "dusk") for seed in (0, 1))


def test_commands_of_a_plan_put_records_where_it_lies(base):
    import shlex

    row = grid_of(base).plan(base / "a place")["tables"][0]["rows"][0]
    assert shlex.split(row["commands"]["night"][0])[-2:] == ["--output", str(base / "a place")]


def test_other_weights_or_images_are_other_cells(base):
    first = set(grid_of(base).runnable())
    make_checkpoint(base / "mine.safetensors", sources=("day",))
    second = set(grid_of(base).runnable())
    (base / "pictures" / "night" / "cat" / "0.png").unlink()
    third = set(grid_of(base).runnable())
    assert not first & second
    assert not second & third


def test_networks_that_are_missing_are_named_with_their_command(base):
    grid = grid_of(base, TEXT.replace('network = "mine"\ndomains', 'network = "absent"\ndomains'))
    assert grid.runnable() == {}
    (command, *_) = grid.missing()
    assert command.startswith("domainadaptor train pacs --network resnet20 --seed 0")
    plan = grid.plan()
    assert plan["tables"][0]["rows"][0]["cells"] == {"night": [None], "dusk": [None]}
    assert plan["tables"][0]["rows"][0]["commands"]["night"] == [command]


def test_options_of_training_are_words_of_its_command(base):
    text = TEXT.replace('network = "mine"\ndomains', 'network = "absent"\ndomains').replace(
        'network = "resnet20" }}',
        'network = "resnet20", select = "swad", select_option = {{ ratio = 0.2 }}, option = {{ outer_lr = 0.5 }}, '
        'algorithm = "mvrml" }}',
    )
    (command, *_) = grid_of(base, text).missing()
    assert "--select swad --select-option ratio=0.2 --option outer_lr=0.5 --algorithm mvrml" in command


def _run(base, ran):
    measure = Workshop.measure

    def counted(self, cell, progress=lambda _: None):
        ran.put(cell.command())
        return measure(self, cell, progress)

    Workshop.measure = counted
    torch.set_num_threads(1)
    grids._AGAIN = 0.05
    run_all(grid_of(base), Store(base / "results"), SILENT)


def test_two_processes_never_do_a_cell_twice(base):
    grid_of(base)
    context = multiprocessing.get_context("spawn")
    ran = context.Queue()
    both = [context.Process(target=_run, args=(base, ran)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
        assert process.exitcode == 0
    commands = [ran.get(timeout=5) for _ in range(4)]
    assert len(set(commands)) == 4
    assert ran.empty()
    assert len(records_of(Store(base / "results"))) == 4


def test_a_cell_that_another_process_is_at_is_waited_for(base, monkeypatch):
    grid, store = grid_of(base), Store(base / "results")
    name, cell = next(iter(grid.runnable().items()))
    record = grid.workshop.measure(cell, lambda _: None)
    other = store.claim(name)
    assert other.__enter__()

    def other_ends(_):
        store.write(record)
        other.__exit__(None, None, None)

    monkeypatch.setattr(grids.time, "sleep", other_ends)
    assert kept(store, name, cell, lambda: pytest.fail("it was measured twice")) == record


def test_a_sweep_lists_the_cells_of_all_domains_a_seed(base):
    text = TEXT + 'rows = ["Tent"]\nsweep = {{ option = "lr", values = [0.01, 0.1] }}\n'
    grid = grid_of(base, text.replace("lr = 0.05\n", ""))
    (table,) = grid.plan()["tables"]
    assert table["columns"] == ["0.01", "0.1"]
    assert not table["mean"]
    assert [len(cell) for cell in table["rows"][0]["cells"].values()] == [1, 1]
    assert all(len(entry) == 2 for cell in table["rows"][0]["cells"].values() for entry in cell)


@pytest.mark.parametrize("measure", ["statistics-distances", "classifier-norms", "loss-curves"])
def test_measurements(base, measure):
    rows = f'rows = ["what"]\nmeasure = "{measure}"\nshow = "{measure}"\n'
    grid = grid_of(base, TEXT.replace("[[table]]", '[rows."what"]\nmethod = "source"\n[[table]]') + rows)
    store = Store(base / "results")
    assert run_all(grid, store, SILENT) == {}
    place = next(place for place in grid.places if place.column == "night")
    values = store.read(place.id)["values"]
    opened = grid.workshop.open(place.cell.network)
    test, segments = grid.workshop.stream(place.cell, opened)
    if measure == "statistics-distances":
        assert values == pytest.approx(literal_distances(opened.network, test, segments), rel=1e-4)
    elif measure == "classifier-norms":
        weight = opened.network.state_dict()["linear.weight"].double()
        assert [c["norm"] for c in values["classes"]] == pytest.approx([float(row.norm()) for row in weight])
        dataset = grid.workshop.dataset("folders")
        counts = [
            sum(e.label == at for d in ("day", "dusk") for e in dataset.domain(d).part("train")) for at in (0, 1, 2)
        ]
        assert [c["images"] for c in values["classes"]] == counts
    else:
        em = next(curve for curve in values["curves"] if curve["label"] == "EM")
        logits = torch.cat([opened.network(pixels) for _, _, pixels in test.batches(segments)]).detach().double()
        p = logits.softmax(1).numpy()
        losses = -(p * np.log(p)).sum(1)
        assert min(em["loss"]) >= losses.min() - 1e-9
        assert max(em["loss"]) <= losses.max() + 1e-9


def literal_distances(network, test, segments):
    """Loops over layers, images and channels."""
    layers = [m for m in network.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    sums = {"image-to-batch minimum": [], "image-to-batch maximum": [], "source-to-batch": []}
    for _, _, pixels in test.batches(segments):
        inputs = {}

        def keep(layer, given, _, inputs=inputs):
            inputs[layer] = given[0].detach().double().numpy()

        hooks = [layer.register_forward_hook(keep) for layer in layers]
        network(pixels)
        for hook in hooks:
            hook.remove()
        for layer in layers:
            x = inputs[layer]
            channels = range(x.shape[1])
            batch = [(x[:, c].mean(), x[:, c].std(ddof=1)) for c in channels]
            source = list(zip(layer.running_mean.tolist(), layer.running_var.sqrt().tolist(), strict=True))
            images = [[(x[n, c].mean(), x[n, c].std(ddof=1)) for c in channels] for n in range(len(x))]
            apart = [distance(image, batch) for image in images]
            sums["image-to-batch minimum"].append(min(apart))
            sums["image-to-batch maximum"].append(max(apart))
            sums["source-to-batch"].append(distance(source, batch))
    return {name: sum(values) / len(values) for name, values in sums.items()}


def distance(a, b):
    return sum(sum((x[k] - y[k]) ** 2 for x, y in zip(a, b, strict=True)) ** 0.5 for k in (0, 1))


def test_a_disk_that_is_full_ends_the_run_with_a_message(base, monkeypatch):
    store = Store(base / "results")
    grid = grid_of(base)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(BadFile, match="No space left"):
        run_all(grid, store, SILENT)
    assert list((Path(base) / "results" / "records").iterdir()) == []
