"""`domainadaptor.evaluate` against loops written out by hand, for every kind of data."""

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset
from torchvision.datasets import ImageFolder
from torchvision.transforms.functional import to_tensor

import domainadaptor as da
from domainadaptor.lab.data.registry import open_dataset
from tests.conftest import GoldenNet, batch, stir

NAMES = tuple("abcdefg")


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return stir(GoldenNet())


@pytest.fixture(scope="module")
def loader():
    labels = torch.arange(20) % 7
    return list(zip(batch(20, 3, 12, 12).split(8), labels.split(8), strict=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two domains of three images per class; one of the files is corrupt."""
    base = tmp_path_factory.mktemp("cameras")
    draw = np.random.default_rng(0)
    for domain in ("day", "night"):
        for name in NAMES:
            (base / domain / name).mkdir(parents=True)
            for at in range(3):
                pixels = draw.integers(0, 256, (12, 12, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(base / domain / name / f"{at}.png")
    (base / "night" / "c" / "1.png").write_bytes(b"\x89PNG and no more")
    return base


def by_hand(adaptor, net, batches):
    """Images, and how many the method and the source model predict correctly."""
    adaptor.reset()
    counted = torch.zeros(3, dtype=torch.long)
    for images, labels in batches:
        right = [(logits.argmax(1) == labels).sum() for logits in (adaptor(images), net(images))]
        counted += torch.stack([torch.tensor(len(labels)), *right])
    return counted.tolist()


def test_rows_are_the_loop_that_one_would_write(net, loader):
    adaptor = da.adapt(net, "tent", lr=0.05, predict="after")
    adaptor(loader[0][0])  # what it has learned is forgotten first
    methods = {
        "plain": "source",
        "strong": ("tent", {"lr": 0.1, "predict": "after"}),
        "mine": adaptor,
        "own": lambda network: da.adapt(network, "adabn"),
    }
    rows = da.evaluate(net, loader, methods, progress=False)
    assert [(row["domain"], row["method"]) for row in rows] == [("", label) for label in methods]
    same = [
        da.adapt(net, "source"),
        da.adapt(net, "tent", lr=0.1, predict="after"),
        da.adapt(net, "tent", lr=0.05, predict="after"),
        da.adapt(net, "adabn"),
    ]
    for row, other in zip(rows, same, strict=True):
        images, right, source_right = by_hand(other, net, loader)
        assert (row["images"], row["accuracy"]) == (images, 100 * right / images)
        assert row["source_accuracy"] == 100 * source_right / images
        assert row["better"] - row["worse"] == right - source_right
        assert row["changed"] >= row["better"] + row["worse"]
        assert (row["fell_back"], row["skipped"]) == (0, 0)
        assert ("too small" in row["notes"]) == (row["method"] not in ("plain", "source"))  # of the last batch
    assert rows[0]["changed"] == 0
    assert rows[1]["changed"] > 0
    assert torch.equal(adaptor(loader[0][0]), same[2].reset() or same[2](loader[0][0]))  # nothing is kept afterwards
    table = pd.DataFrame(rows).pivot(index="domain", columns="method", values="accuracy")
    assert table.loc["", "strong"] == rows[1]["accuracy"]


def test_each_domain_starts_from_the_source_model(net, loader):
    methods = {"online": ("tent", {"lr": 0.1, "predict": "after"})}
    first, again = da.evaluate(net, {"a": loader, "b": loader}, methods, progress=False)
    (longer,) = da.evaluate(net, [*loader, *loader], methods, progress=False)
    assert first | {"seconds": 0} == again | {"seconds": 0, "domain": "a"}
    assert longer["changed"] != 2 * first["changed"]


def test_loaders_and_data_sets_of_tensors_are_the_same_images(net, loader):
    images, labels = (torch.cat(parts) for parts in zip(*loader, strict=True))
    dataset = TensorDataset(images, labels)
    dicts = [{"pixel_values": x, "labels": y} for x, y in loader]
    kinds = [loader, DataLoader(dataset, batch_size=8), dicts, iter(loader)]
    rows = [da.evaluate(net, kind, ["adabn"], progress=False)[0] | {"seconds": 0} for kind in kinds]
    assert all(row == rows[0] for row in rows)
    # A data set is shuffled, by the seed.
    first, again, other = (da.evaluate(net, dataset, ["source"], seed=seed, progress=False)[0] for seed in (0, 0, 1))
    assert first | {"seconds": 0} == again | {"seconds": 0} == other | {"seconds": 0}
    three = [da.evaluate(net, dataset, ["tent"], seed=seed, batch_size=4, progress=False)[0] for seed in range(3)]
    assert len({tuple(row.items()) for row in [r | {"seconds": 0} for r in three]}) > 1


def test_folders_by_domain_with_what_cannot_be_read(net, folder):
    rows = da.evaluate(net, folder, ["source", "adamixbn"], transform=to_tensor, batch_size=5, progress=False)
    places = [(row["domain"], row["method"], row["images"], row["skipped"]) for row in rows]
    assert places == [("day", "source", 21, 0), ("day", "adamixbn", 21, 0), ("night", "source", 20, 1),
                      ("night", "adamixbn", 20, 1)]  # fmt: skip
    dataset = open_dataset("folders", folder)
    again = da.evaluate(net, dataset, ["source", "adamixbn"], transform=to_tensor, batch_size=5, progress=False)
    assert [row | {"seconds": 0} for row in again] == [row | {"seconds": 0} for row in rows]
    # One domain, and torchvision's reading of the same images; the source model does not depend on their order.
    (single,) = da.evaluate(net, str(folder / "day"), ["source"], transform=to_tensor, progress=False)
    images = ImageFolder(folder / "day", to_tensor)
    (theirs,) = da.evaluate(net, images, ["source"], progress=False)
    right = sum(int(net(image[None]).argmax() == label) for image, label in images)
    assert single["accuracy"] == theirs["accuracy"] == rows[0]["accuracy"] == 100 * right / 21
    later = da.evaluate(net, ImageFolder(folder / "day"), ["source"], transform=to_tensor, progress=False)
    assert later[0] | {"seconds": 0} == theirs | {"seconds": 0}
    named = da.evaluate(net, {"mine": folder, "images": images}, ["source"], transform=to_tensor, progress=False)
    assert [row["domain"] for row in named] == ["mine day", "mine night", "images"]


def test_some_of_the_networks_classes_in_another_order(net, folder, tmp_path):
    for name in ("e", "b"):
        (tmp_path / name).symlink_to(folder / "day" / name)
    (row,) = da.evaluate(net, tmp_path, ["source"], transform=to_tensor, classes=NAMES, progress=False)
    right = sum(
        int(net(to_tensor(Image.open(file))[None]).argmax() == NAMES.index(name))
        for name in ("b", "e")
        for file in (tmp_path / name).iterdir()
    )
    assert (row["images"], row["accuracy"]) == (6, 100 * right / 6)
    with pytest.raises(da.BadOption, match="2 classes .*network has 7 outputs: pass classes="):
        da.evaluate(net, tmp_path, ["source"], transform=to_tensor, progress=False)
    with pytest.raises(da.BadOption, match="no class 'b'"):
        da.evaluate(net, tmp_path, ["source"], transform=to_tensor, classes=("e", "a"), progress=False)


def test_mistakes_are_explained(net, loader, folder):
    for data, error, said in [
        (folder, da.BadOption, "pass transform="),
        (ImageFolder(folder / "day"), da.BadOption, "pass transform="),
        ("no/such/folder", da.BadFile, "No folder and no data set .*data sets: .*pacs"),
        (7, da.BadOption, "got a int"),
        ([x for x, _ in loader], da.BadBatch, "no labels"),
        ([(x, y[:3]) for x, y in loader], da.BadBatch, r"8 images and labels of shape \(3,\)"),
        ([(x, y + 7) for x, y in loader], da.BadBatch, "Label 13 .* 7 outputs"),
    ]:
        with pytest.raises(error, match=said):
            da.evaluate(net, data, ["source"], progress=False)
    with pytest.raises(da.BadOption, match="did you mean 'tent'"):
        da.evaluate(net, loader, ["tnt"], progress=False)


def test_a_progress_bar(net, loader, capsys):
    da.evaluate(net, {"night": loader}, ["source"])
    shown = capsys.readouterr()
    assert "night: 100%" in shown.err
    assert "3/3" in shown.err
    da.evaluate(net, loader, ["source"], progress=False)
    assert capsys.readouterr().err == ""
