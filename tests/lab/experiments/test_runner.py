"""Cells as they are measured: which images, which network, and a record that says both."""

import shutil
from dataclasses import asdict

import PIL
import torch
import torchvision

import domainadaptor as da
from domainadaptor.lab.data.preprocessing import squashed
from domainadaptor.lab.data.registry import open_dataset
from domainadaptor.lab.experiments.networks import LocatedNetwork
from domainadaptor.lab.experiments.run_spec import RunSpec
from domainadaptor.lab.experiments.runner import Runner
from domainadaptor.lab.experiments.sweep import run_sweep
from domainadaptor.lab.networks.checkpoint import make_network
from domainadaptor.lab.records.store import Store
from tests.lab.experiments.pictures import make_checkpoint
from tests.lab.experiments.small import SILENT, TEXT, sweep_of


def test_what_the_data_held_is_recorded(base, store):
    run_sweep(sweep_of(base), store, SILENT)
    (manifest,) = store.manifests()
    assert {record.run.data for record in store.runs().values()} == {manifest.fingerprint}
    assert manifest.domains["night"].classes == {"cat": 8, "dog": 8, "owl": 8}
    assert sum(manifest.domains["night"].parts.values()) == 24
    digests = {name: domain.sha256 for name, domain in manifest.domains.items()}
    (base / "pictures" / "day" / "cat" / "0.png").unlink()
    changed = open_dataset("folders", base / "pictures").manifest()
    assert [name for name, domain in changed["domains"].items() if domain["sha256"] != digests[name]] == ["day"]


def test_the_numbers_are_those_of_adapt(base, store):
    sweep = sweep_of(base)
    run_sweep(sweep, store, SILENT)
    cell = next(cell for cell in sweep.cells if (cell.row, cell.column) == ("Tent", "night"))
    record = store.run(cell.id)
    opened = sweep.runner.open(cell.spec.network)
    test, segments = sweep.runner.stream(cell.spec, opened)
    adaptor = da.adapt(opened.network, "tent", lr=0.05, predict="after")
    right = sum(
        int((adaptor(pixels).argmax(1) == torch.tensor([item.label for item in items])).sum())
        for _, items, pixels in test.batches(segments)
    )
    assert record.scores["night"].right == right
    assert record.scores["night"].images == 24
    assert record.preprocessing.model_dump() == asdict(opened.preprocessing)
    assert record.environment.pillow == PIL.__version__
    assert record.environment.torchvision.split("+")[0] == torchvision.__version__.split("+")[0]


def test_a_domain_that_was_trained_on_gives_its_validation_images(base, store):
    sweep = sweep_of(base)
    run_sweep(sweep, store, SILENT)
    cell = next(cell for cell in sweep.cells if cell.column == "dusk")
    record = store.run(cell.id)
    assert record.images["dusk"] < 24
    assert any("dusk is a source" in note for note in record.notes)


def test_the_same_images_in_a_folder_of_another_name_are_sources_all_the_same(base):
    train = open_dataset("folders", base / "pictures")
    make_checkpoint(base / "mine.safetensors", recipe={"data": train.fingerprint()})
    shutil.copytree(base / "pictures", base / "renamed")
    records = []
    for name in ("pictures", "renamed"):
        sweep = sweep_of(base, root=name)
        with Store(base / f"results-{name}") as store:
            run_sweep(sweep, store, SILENT)
            records.append(store.runs())
    assert records[0].keys() == records[1].keys()
    for name, record in records[0].items():
        seen = tuple(domain for domain in record.run.domains if domain == "dusk")
        assert record.run.validation == seen
        assert record.images == records[1][name].images
        assert bool(record.cautions) == bool(seen)


def test_other_images_under_the_name_of_a_source_are_tested_with_a_caution(base, store):
    make_checkpoint(base / "mine.safetensors", dataset="elsewhere")
    run_sweep(sweep_of(base), store, SILENT)
    for record in store.runs().values():
        assert not record.run.validation
        assert sum(record.images.values()) == 24
        assert ["if the images are the same" in text for text in record.cautions] == [True] * ("dusk" in record.images)


def test_a_domain_gives_the_same_images_whatever_is_beside_it(base):
    runner = Runner(base / "pictures", None, torch.device("cpu"))
    located = LocatedNetwork("mine", str(base / "mine.safetensors"), base / "mine.safetensors")
    drawn = []
    for domains in (("night",), ("day", "night")):
        cell = RunSpec("folders", domains, located, protocol="continual", images=7)
        _, segments = runner.stream(cell, runner.open(located))
        drawn.append([item for batch in segments[-1].batches for item in batch])
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == 7


def test_a_record_has_the_defaults_of_its_protocol_and_skips_only_what_it_met(base):
    (base / "pictures" / "night" / "cat" / "broken.png").write_bytes(b"no picture")
    runner = Runner(base / "pictures", base / "images", torch.device("cpu"))
    located = LocatedNetwork("mine", str(base / "mine.safetensors"), base / "mine.safetensors")
    few = runner.run(RunSpec("folders", ("night",), located, protocol="few-data"))
    assert few.defaults["few-data subset"] == 64
    assert list(few.skipped) == ["night/cat/broken.png"]
    whole = [runner.run(RunSpec("folders", ("night",), located, images=4, order=order)) for order in range(4)]
    met = [bool(record.skipped) for record in whole]
    assert [record.images["night"] for record in whole] == [3 if broken else 4 for broken in met]
    assert not all(met)


def test_outputs_without_names_are_taken_in_the_order_of_the_classes(base):
    torch.manual_seed(0)
    torch.save(make_network("resnet20", 3, head_bias=True, norm="batch").state_dict(), base / "plain.pth")
    runner = Runner(base / "pictures", None, torch.device("cpu"))
    located = LocatedNetwork("plain", "cifar:resnet20", weights=str(base / "plain.pth"))
    record = runner.run(RunSpec("folders", ("night",), located))
    assert record.images == {"night": 24}
    assert ["cat, dog, owl" in text for text in record.cautions] == [True]


def test_other_options_of_a_data_set_are_other_images(base):
    runner = Runner(base / "pictures" / "night", None, torch.device("cpu"))
    made = [
        RunSpec(
            "corrupted", ("gaussian_noise",), LocatedNetwork("mine", "mine"), data_options={"size": 12, "seed": seed}
        )
        for seed in (0, 1)
    ]
    pictures = [runner._images_of(cell, "gaussian_noise", squashed(12)).take([0])[0] for cell in made]
    assert not torch.equal(*pictures)


def test_a_network_that_is_replaced_meanwhile_is_not_taken_for_the_first(base, store):
    make_checkpoint(base / "more.safetensors")
    text = TEXT.replace(
        "[networks.absent]", '[networks.more]\ncheckpoint = "{base}/more.safetensors"\n[networks.absent]'
    )
    sweep = sweep_of(
        base, text.replace('[rows."Tent"]', '[rows."other"]\nmethod = "adabn"\nnetwork = "more"\n[rows."Tent"]')
    )
    make_checkpoint(base / "mine.safetensors", sources=("day",))
    failed = run_sweep(sweep, store, SILENT)
    assert len(failed) == 4
    assert all("replaced during the run" in why for why in failed.values())


OWN = """
title = "Own weights"
[networks.own]
network = "resnet20"
weights = "{base}/own.pth"
size = 12
resize = "squash"
mean = [0.5, 0.5, 0.5]
std = [0.25, 0.25, 0.25]
classes = "{base}/classes.txt"
[rows."source model"]
method = "source"
[[table]]
title = "One"
dataset = "folders"
network = "own"
domains = ["night"]
"""


def test_own_weights_run_with_the_preprocessing_of_the_experiment_file(base, store):
    network = make_network("resnet20", 3, head_bias=True, norm="batch")
    torch.save(network.state_dict(), base / "own.pth")
    (base / "classes.txt").write_text("cat\ndog\nowl\n")
    sweep = sweep_of(base, OWN)
    assert sweep.notes() == []
    assert run_sweep(sweep, store, SILENT) == {}
    (record,) = store.runs().values()
    known = record.preprocessing
    assert (known.size, known.squash, known.mean, known.std) == (12, True, (0.5,) * 3, (0.25,) * 3)
    assert record.run.raw["size"] == 12
    assert record.run.raw["classes"] == ["cat", "dog", "owl"]
    assert f"--classes {base / 'classes.txt'}" in record.command
    without = OWN.replace("size = 12\n", "").replace('resize = "squash"\n', "")
    (note,) = sweep_of(base, without).notes()
    assert note.startswith("own: own.pth does not include preprocessing; size, resize: the default of")
