import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import domainadaptor as da
from domainadaptor.errors import BadBatch
from tests.conftest import batch

X, Y = batch(20, 3, 12, 12), torch.arange(20)


@pytest.mark.parametrize(
    ("images", "hint"),
    [
        ([1, 2], "a list"),
        ({"pixel_values": torch.zeros(1)}, "a dict"),
        (torch.zeros(2, 3, 12, 12, dtype=torch.uint8), "uint8"),
        (torch.tensor(1.0), "batch dimension"),
        (torch.zeros(2, 3, 12, 12, dtype=torch.float64), "float64.*float32"),
        (torch.zeros(2, 3, 12, 12, device="meta"), "meta.*cpu"),
    ],
)
def test_what_is_no_batch_is_refused(net, images, hint):
    with pytest.raises(BadBatch, match=hint):
        da.adapt(net, "adamixbn")(images)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_the_images_with_bad_pixels_are_named(net, value):
    x = batch(8, 3, 12, 12)
    x[2, 0, 3, 3] = value
    x[5] = value
    with pytest.raises(BadBatch, match=r"2 of 8 images, at positions 2, 5\."):
        da.adapt(net, "domainadaptor-t")(x)


def test_a_sum_that_overflows_is_not_a_bad_pixel(net):
    x = torch.full((8, 3, 12, 12), 3e38)
    result = da.adapt(net, "adamixbn").adapt(x)
    assert result.fell_back


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(X, batch_size=8),
        DataLoader(TensorDataset(X, Y), batch_size=8),
        X.split(8),
        [{"pixel_values": x, "labels": None} for x in X.split(8)],
        [[x, y, "path"] for x, y in zip(X.split(8), Y.split(8), strict=True)],
    ],
    ids=["images", "pairs", "tensors", "dicts", "lists"],
)
def test_loaders(net, loader):
    adaptor = da.adapt(net, "domainadaptor-t")
    expected = torch.cat([adaptor(x) for x in X.split(8)])
    assert torch.equal(da.predict(adaptor, loader), expected)


def test_labels_cannot_matter(net):
    adaptor = da.adapt(net, "domainadaptor-t")
    one = da.predict(adaptor, DataLoader(TensorDataset(X, Y), batch_size=8))
    other = da.predict(adaptor, DataLoader(TensorDataset(X, torch.full((20,), float("nan"))), batch_size=8))
    assert torch.equal(one, other)


def test_an_empty_loader_gives_an_empty_answer(net):
    assert da.predict(da.adapt(net, "source"), []).numel() == 0


def test_what_is_no_batch_is_named(net):
    with pytest.raises(BadBatch, match="batch 1 .* a str"):
        da.predict(da.adapt(net, "source"), [X[:2], "images"])
