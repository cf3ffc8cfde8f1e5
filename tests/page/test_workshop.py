"""Runs: the numbers are those of the library, and what goes wrong is told."""

import io
import re
import socket

import pytest
import torch
from safetensors.torch import load

import domainadaptor as da
from domainadaptor.catalog import DEFAULT_METHOD
from domainadaptor.errors import AdaptationError, BadFile, BadOption, UnsupportedNetwork
from domainadaptor.lab.files import digest_of
from domainadaptor.lab.networks.checkpoint import load_checkpoint
from domainadaptor.lab.networks.loading import load_network
from domainadaptor.lab.prediction import shuffled_batches
from domainadaptor.page import networks
from domainadaptor.page.order import PicturesOrder, RunOrder, offers
from domainadaptor.page.pictures import sample_pictures
from domainadaptor.page.workshop import Workshop
from tests.page.pictures import label, picture


def run(workshop, **order):
    """Return all rows by file, the summary, and every line of a run."""
    lines = []
    workshop.run(RunOrder(**{"method": "adabn", "style": "pen", **order}), lines.append)
    rows = {row["file"]: row for line in lines for row in line.get("rows", [])}
    return rows, lines[-1], lines


def uploaded(workshop, files: dict[str, bytes]):
    return {name: workshop.store.add(data) for name, data in files.items()}


def test_rows_and_numbers_are_those_of_the_library(workshop, demo):
    rows, summary, _ = run(workshop, corruption="fog", severity=2, batch_size=48)
    pictures = sample_pictures("pen")
    read = pictures.fitted(networks.CARD.preprocessing, "fog", 2)
    transform = networks.CARD.preprocessing.transform()
    images = torch.stack([transform(read(name)) for name in pictures.names])
    adaptor = da.adapt(demo, "adabn")
    with torch.no_grad():
        source = demo(images).softmax(1)
    adapted = torch.empty_like(source)
    alpha = []
    for chosen in shuffled_batches(range(200), 48, seed=0):
        result = adaptor.adapt(images[chosen])
        adapted[chosen] = result.logits.softmax(1)
        alpha.append(result.alpha)
    for at, name in enumerate(pictures.names):
        row = rows[name]
        assert row["label"] == label(at)
        assert (row["source_prediction"], row["adapted_prediction"]) == (
            str(int(source[at].argmax())),
            str(int(adapted[at].argmax())),
        )
        assert row["source_confidence"] == pytest.approx(float(source[at].max()), abs=1e-5)
        assert row["adapted_confidence"] == pytest.approx(float(adapted[at].max()), abs=1e-5)
    labels = torch.tensor([int(label(at)) for at in range(200)])
    assert summary["right"] == [int((found.argmax(1) == labels).sum()) for found in (source, adapted)]
    assert summary["changed"] == int((source.argmax(1) != adapted.argmax(1)).sum()) > 0
    assert summary["sure"][1] == pytest.approx(float(adapted.amax(1).mean()), abs=1e-5)
    assert summary["alpha"] == pytest.approx({k: sum(each[k] for each in alpha) / len(alpha) for k in alpha[0]})
    assert min(summary["seconds"]) > 0


def test_the_checkpoint_is_calibrated_on_all_images_of_the_run(workshop, demo, tmp_path):
    _, summary, _ = run(workshop, corruption="fog", severity=2, batch_size=48)
    path = tmp_path / "calibrated.safetensors"
    path.write_bytes(workshop.checkpoint(str(summary["run"])))
    card = load_checkpoint(path).card
    found = card.calibration
    assert (found["images"], found["folder"]) == (200, "sample digits (pen), fog 2 of 5")
    assert (found["source"], found["source_sha256"]) == (networks.demo_path().name, digest_of(networks.demo_path()))
    assert (card.dataset, card.sources) == (networks.CARD.dataset, networks.CARD.sources)
    pictures = sample_pictures("pen")
    read = pictures.fitted(networks.CARD.preprocessing, "fog", 2)
    images = torch.stack([networks.CARD.preprocessing.transform()(read(name)) for name in pictures.names])
    expected = da.calibrate(demo, [images[chosen] for chosen in shuffled_batches(range(200), 48, seed=0)])
    with torch.no_grad():
        torch.testing.assert_close(load_network(str(path)).network(images), expected(images), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("names", "folder"),
    [(["mine/cat/a.png", "mine/b.png"], "mine"), (["a/x.png", "b/y.png"], "images"), (["x.png"], "images")],
)
def test_own_images_are_called_by_their_folder(names, folder):
    assert PicturesOrder(images=dict.fromkeys(names, "id")).subject() == folder


def test_the_checkpoint_of_an_earlier_run_is_refused(workshop):
    _, summary, _ = run(workshop)
    run(workshop)
    with pytest.raises(BadOption, match="Run it again"):
        workshop.checkpoint(str(summary["run"]))


def test_a_method_without_a_plain_network_has_a_checkpoint_too(workshop):
    _, summary, _ = run(workshop, method="lame")
    assert load(workshop.checkpoint(str(summary["run"])))


def test_a_network_without_batch_norm_has_no_checkpoint(workshop, monkeypatch):
    given = load_network("timm:test_vit")
    monkeypatch.setattr(networks, "load_network", lambda *args, **more: given)
    _, summary, _ = run(workshop, network="timm:test_vit", method="tent", batch_size=8)
    with pytest.raises(UnsupportedNetwork, match="batch norm"):
        workshop.checkpoint(str(summary["run"]))


def test_a_network_by_name_gets_a_checkpoint_that_fits_it(workshop, demo, tmp_path, monkeypatch):
    torch.save(demo.state_dict(), tmp_path / "weights.pt")
    given = load_network("cifar:resnet8", str(tmp_path / "weights.pt"))
    monkeypatch.setattr(networks, "load_network", lambda *args, **more: given)
    _, summary, _ = run(workshop, network="cifar:resnet8")
    content = workshop.checkpoint(str(summary["run"]))
    (tmp_path / "again.safetensors").write_bytes(content)
    monkeypatch.undo()
    again = load_network(str(tmp_path / "again.safetensors"))
    assert (again.classes, again.name, again.preprocessing) == (given.classes, given.name, given.preprocessing)
    assert load(content).keys() == demo.state_dict().keys()


def test_images_that_cannot_be_read_are_rows_too(workshop):
    files = {f"{label(at)}/{at}.png": picture(at) for at in range(4)}
    half = {"0/half.png": picture(0)[:200]}
    rows, summary, _ = run(workshop, style=None, images=uploaded(workshop, files | half))
    assert "not a readable image" in rows["0/half.png"]["skipped"]
    assert (summary["images"], summary["labeled"]) == (4, 4)
    with pytest.raises(BadFile, match="None of these images"):
        run(workshop, style=None, images=uploaded(workshop, half))


@pytest.mark.parametrize(
    ("order", "stage", "message"),
    [
        ({"network": "nothing.safetensors"}, "network", "no checkpoint at"),
        ({"network": "resnt18"}, "network", "unknown network"),
        ({"style": "crayon"}, "images", "no domain 'crayon'"),
        ({"style": None}, "images", "Choose a folder"),
        ({"style": None, "images": {"a": "b"}}, "images", "Choose them again"),
        ({"method": "tnt"}, "method", "unknown method"),
        ({"method": "eata"}, "method", "source"),
        ({"method": "note"}, "method", "instance-aware"),
    ],
)
def test_mistakes_are_told_where_they_were_made(workshop, order, stage, message):
    lines = []
    with pytest.raises(AdaptationError, match=re.compile(message, re.I)):
        workshop.run(RunOrder(**{"method": "adabn", "style": "pen", **order}), lines.append)
    assert [line["stage"] for line in lines if "stage" in line][-1] == stage


def test_the_preview_does_not_train(cache):
    workshop, lines = Workshop(networks.NetworkFinder(), torch.device("cpu")), []
    workshop.preview(PicturesOrder(style="neon", corruption="snow", severity=5), lines.append)
    assert len(lines[-1]["pictures"]) == 6
    assert lines[-1]["labeled"] == 200
    assert not cache.exists()


def test_every_method_that_is_offered_runs(workshop):
    names = [method["name"] for method in offers()["methods"]]
    assert names[0] == DEFAULT_METHOD
    assert {"tent", "lame", "t3a"} < set(names)
    assert not {"source", "eata", "jigsaw", "note"} & set(names)
    files = uploaded(workshop, {f"{at}.png": picture(at) for at in range(4)})
    for name in names:
        rows, _, _ = run(workshop, style=None, images=files, method=name)
        assert len(rows) == 4


def test_checkpoints_nearby_are_offered(demo, tmp_path):
    (tmp_path / "runs").mkdir()
    data = networks.demo_path().read_bytes()
    (tmp_path / "runs" / "a.safetensors").write_bytes(data)
    (tmp_path / "b.safetensors").write_bytes(b"something else")
    assert networks.NetworkFinder.nearby() == ["runs/a.safetensors"]


def test_training_that_is_canceled_leaves_nothing(cache):
    def leave(what, done, total):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        networks.demo_checkpoint(leave)
    assert not list(cache.rglob("*"))


@pytest.mark.slow
def test_the_demo_network_gains_on_the_style_that_it_has_not_seen(cache):
    workshop = Workshop(networks.NetworkFinder(), torch.device("cpu"))
    _, unseen, lines = run(workshop, method=DEFAULT_METHOD)
    assert lines[1]["what"].startswith("Training")
    assert unseen["verdict"]["tone"] == "good"
    assert unseen["right"][1] >= 160
    for style in networks.CARD.sources:
        _, seen, _ = run(workshop, style=style, method=DEFAULT_METHOD)
        assert seen["right"][0] >= 180


def test_nothing_connects_to_anything(workshop, monkeypatch):
    def refuse(*args):
        raise AssertionError(args)

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    _, summary, _ = run(workshop)
    assert io.BytesIO(workshop.checkpoint(str(summary["run"]))).getbuffer().nbytes > 1000
