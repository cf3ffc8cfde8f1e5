"""The single-forward form against the adaptor, and under torch's exporters and compilers."""

import warnings

import pytest
import torch
from torch import nn

import domainadaptor as da
from domainadaptor.adaptation.logits import logits_in
from domainadaptor.errors import BadOption, UnsupportedNetwork
from tests.conftest import GoldenNet, batch, stir
from tests.lab.networks.test_every_network import Signal, Volume

FORMS = [
    ("auto", {"effort": "one"}),
    ("source", {}),
    ("adabn", {}),
    ("adabn", {"variance": "unbiased"}),
    ("adamixbn", {}),
    ("adamixbn", {"alpha": "paper", "fold": False}),
    ("adamixbn", {"alpha": "code-reversed", "variance": "biased"}),
    ("adamixbn", {"alpha": 0.3}),
    ("adamixbn", {"alpha": 1.0}),
]
EVERY_FORM = pytest.mark.parametrize(("method", "options"), FORMS, ids=lambda value: str(value))


class Vectors(nn.Module):
    """One value per channel: a single image has no statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Linear(9, 4))

    def forward(self, x):
        return self.layers(x)


def of_images(network, *shape):
    """Return the network in float64, and images of different color and contrast."""
    torch.manual_seed(0)
    images = batch(8, *shape, dtype=torch.float64)
    kinds = batch(8, 2, *[1] * (len(shape) - 1), seed=5, dtype=torch.float64)
    return stir(network()).double(), images * kinds[:, :1].exp() + kinds[:, 1:]


def adapted(network, images, method, options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return da.adapt(network, method, **options)(images)


@EVERY_FORM
@pytest.mark.parametrize(
    ("network", "shape"),
    [(GoldenNet, (3, 12, 12)), (Signal, (3, 40)), (Volume, (3, 9, 10, 8)), (Vectors, (6,))],
    ids=["images", "signals", "volumes", "vectors"],
)
def test_it_answers_as_the_adaptor(network, shape, method, options):
    net, images = of_images(network, *shape)
    form = da.single_forward(net, method, **options)
    for count in (1, 2, 5, 8):
        expected = adapted(net, images[:count], method, options)
        torch.testing.assert_close(logits_in(form(images[:count])), expected, rtol=1e-9, atol=1e-9)


def test_auto_uses_the_source_statistics_for_a_single_image(net, images):
    torch.testing.assert_close(da.single_forward(net)(images[:1]), net(images[:1]))
    assert not torch.allclose(da.single_forward(net)(images), net(images), atol=1e-2)


@pytest.mark.parametrize("method", ["auto", "adamixbn"])
def test_float32_keeps_its_digits_under_a_large_shift(method):
    net, images = of_images(GoldenNet, 3, 12, 12)
    images = images * 3 + 20
    expected = adapted(net, images, method, {"effort": "one"} if method == "auto" else {})
    found = da.single_forward(net.float(), method)(images.float())
    assert float((found - expected).norm() / expected.norm()) < 1e-4


def test_it_is_plain_and_independent(net, images):
    expected = net(images)
    form = da.single_forward(net, "adabn")
    assert not any(p.requires_grad for p in form.parameters())
    with torch.no_grad():
        for tensor in form.state_dict().values():
            tensor.zero_()
    assert torch.equal(net(images), expected)
    assert isinstance(da.single_forward(net, "source").get_submodule("bn1"), nn.BatchNorm2d)


@pytest.mark.parametrize(("method", "options"), [FORMS[0], FORMS[2], FORMS[5]], ids=["auto", "adabn", "adamixbn"])
def test_it_is_exported_for_any_number_of_images(net, images, method, options):
    exported = torch.export.export(
        da.single_forward(net, method, **options), (images,), dynamic_shapes=({0: torch.export.Dim("batch")},)
    )
    for count in (2, 3, 8):
        expected = adapted(net, images[:count], method, options)
        torch.testing.assert_close(exported.module()(images[:count]), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "method", ["auto", *(pytest.param(name, marks=pytest.mark.slow) for name in ("adabn", "adamixbn"))]
)
def test_it_is_compiled_as_one_graph(net, images, method):
    compiled = torch.compile(da.single_forward(net, method), fullgraph=True, dynamic=True, backend="eager")
    for count in (8, 3, 1):
        expected = adapted(net, images[:count], method, {"effort": "one"} if method == "auto" else {})
        torch.testing.assert_close(compiled(images[:count]), expected, rtol=1e-4, atol=1e-5)


def test_methods_that_learn_are_refused_with_what_to_do(net):
    with pytest.raises(BadOption, match=r"'tent' has no single-forward form; .*calibrate\(network, images\)"):
        da.single_forward(net, "tent")
    with pytest.raises(BadOption, match="effort='most' takes several forward passes"):
        da.single_forward(net, "auto", effort="most")
    with pytest.raises(BadOption, match="loss='gem-t' takes gradient steps"):
        da.single_forward(net, "adamixbn", loss="gem-t")
    with pytest.raises(BadOption, match="min_batch"):
        da.single_forward(net, "adabn", min_batch=3)
    with pytest.raises(BadOption, match="alpha"):
        da.single_forward(net, "adamixbn", alpha=1.5)


def test_networks_without_batch_norm_are_refused_where_there_is_nothing_to_adapt():
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)).eval()
    with pytest.raises(UnsupportedNetwork, match="no batch normalization"):
        da.single_forward(network, "adabn")
    images = batch(2, 3, 2, 2)
    assert torch.equal(da.single_forward(network, "source")(images), network(images))
