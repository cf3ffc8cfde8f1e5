import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import domainadaptor as da
from domainadaptor.errors import BadBatch, UnsupportedNetwork
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
        (torch.zeros(2, 3, 12, 12).to(torch.float8_e4m3fn), "float8_e4m3fn.*float32"),
        (torch.zeros(2, 3, 12, 12).to(torch.complex64), "complex64"),
        (torch.zeros(2, 3, 12, 12).to_sparse(), "a dense tensor.*sparse_coo"),
        (torch.nested.as_nested_tensor([torch.zeros(3, 12, 12)] * 2, layout=torch.jagged), "a dense tensor.*nested"),
        (torch.zeros(2, 3, 0, 12), r"no pixels.*\(3, 0, 12\)"),
        (torch.zeros(0, 3, 0, 12), r"no pixels.*\(3, 0, 12\)"),
        (torch.zeros(2, 1, 12, 12), r"shape \(2, 1, 12, 12\), but the layer 'c1' takes \(N, 3, H, W\)"),
        (torch.zeros(0, 1, 12, 12), r"shape \(0, 1, 12, 12\), but the layer 'c1' takes \(N, 3, H, W\)"),
        (torch.zeros(2, 432), r"shape \(2, 432\), but the layer 'c1' takes \(N, 3, H, W\)"),
        (torch.zeros(1, 2, 3, 12, 12), r"shape \(1, 2, 3, 12, 12\), but the layer 'c1'"),
        (torch.zeros(3, 12, 12), r"shape \(3, 12, 12\), but the layer 'c1' takes.*image\[None\]"),
    ],
)
@pytest.mark.parametrize("method", ["adamixbn", "source", "cotta"])
def test_what_is_no_batch_is_refused(net, images, hint, method):
    adaptor = da.adapt(net, method)
    with pytest.raises(BadBatch, match=hint):
        adaptor(images)
    with pytest.raises(BadBatch, match=hint):
        adaptor.source_logits(images)


def weights_of(network, convert):
    for layer in network.modules():
        for name, p in layer._parameters.items():
            if p is not None:
                layer._parameters[name] = nn.Parameter(convert(p.detach()), requires_grad=False)
    return network


@pytest.mark.filterwarnings("ignore:Complex modules")
@pytest.mark.parametrize(
    ("broken", "hint"),
    [
        (lambda net: net.to(torch.float8_e4m3fn), "'c1.weight' is torch.float8_e4m3fn"),
        (lambda net: net.to(torch.complex64), "'bn1' are torch.complex64"),
        (
            lambda net: weights_of(net, lambda p: p.to(torch.complex64)),
            "images are torch.float32.*'c1.weight' is.*complex64",
        ),
        (
            lambda net: weights_of(net, lambda p: p.to(torch.int8)),
            "images are torch.float32.*'c1.weight' is torch.int8",
        ),
        (lambda net: weights_of(net, lambda p: p.bool()), "images are torch.float32.*'c1.weight' is torch.bool"),
    ],
)
def test_weights_that_compute_nothing_are_named(net, broken, hint):
    with pytest.raises(UnsupportedNetwork, match=hint):
        da.adapt(broken(net), "adamixbn")(X)


def test_an_error_of_the_network_itself_is_raised_as_it_is(net):
    net.fc.register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        da.adapt(net, "adamixbn")(X)


@pytest.mark.parametrize("method", ["source", "domainadaptor-t", "tent", "cotta", "memo"])
def test_a_source_model_without_an_answer_is_an_error(net, method):
    """There is nothing to fall back to, and NaN is no answer."""
    adaptor = da.adapt(net, method, **({"views": 2} if method in ("cotta", "memo") else {}))
    x = X[:3].clone()
    x[1] = 1e38
    for call in (adaptor, adaptor.source_logits):
        with pytest.raises(BadBatch, match="source model's own logits are not finite for 1 of"):
            call(x)
    with torch.no_grad():
        net.fc.weight[0] = float("nan")
    adaptor = da.adapt(net, method, **({"views": 2} if method in ("cotta", "memo") else {}))
    for call in (adaptor, adaptor.source_logits):
        with pytest.raises(UnsupportedNetwork, match="weights are not finite: fc.weight"):
            call(X[:3])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_the_images_with_bad_pixels_are_named(net, value):
    x = batch(8, 3, 12, 12)
    x[2, 0, 3, 3] = value
    x[5] = value
    with pytest.raises(BadBatch, match=r"2 of 8 images, at positions 2, 5\."):
        da.adapt(net, "domainadaptor-t")(x)


def test_a_sum_that_overflows_is_not_a_bad_pixel(net):
    x = torch.full((8, 3, 12, 12), 1e36)
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


def test_progress_has_the_results(net):
    seen = []
    da.predict(da.adapt(net, "adabn"), X.split(8), progress=lambda *now: seen.append(now))
    assert [done for done, _ in seen] == [8, 16, 20]
    assert [len(result.warnings) for _, result in seen] == [0, 0, 1]
    da.predict(net, X.split(8), progress=lambda *now: seen.append(now))
    assert torch.equal(seen[-1][1], net(X[16:]))


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
