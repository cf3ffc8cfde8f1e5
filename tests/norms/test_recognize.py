import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize, prune

import domainadaptor as da
from domainadaptor.errors import UnsupportedNetwork
from domainadaptor.norms.recognize import find_norms
from tests.conftest import batch, stir


def timm_norms():
    return pytest.importorskip("timm.layers.norm_act")


class Plain(nn.BatchNorm2d):
    """Does not override forward: counts as its parent."""


class Own(nn.BatchNorm2d):
    def forward(self, x):
        return super().forward(x) * 2


KNOWN = {
    "BatchNorm2d": lambda: nn.BatchNorm2d(6),
    "subclass": lambda: Plain(6),
    "SyncBatchNorm": lambda: nn.SyncBatchNorm(6),
    "momentum none": lambda: nn.BatchNorm2d(6, momentum=None, eps=1e-3),
    "not affine": lambda: nn.BatchNorm2d(6, affine=False),
    "frozen": lambda: pytest.importorskip("torchvision.ops.misc").FrozenBatchNorm2d(6, eps=1e-3),
    "BatchNormAct2d": lambda: timm_norms().BatchNormAct2d(6, act_layer=nn.SiLU, drop_layer=lambda: nn.Dropout(0.5)),
    "FrozenBatchNormAct2d": lambda: timm_norms().FrozenBatchNormAct2d(6),
    "SyncBatchNormAct": lambda: timm_norms().convert_sync_batchnorm(nn.Sequential(timm_norms().BatchNormAct2d(6)))[0],
    "PReLU": lambda: with_prelu(timm_norms().BatchNormAct2d(6)),
}


def with_prelu(norm: nn.Module) -> nn.Module:
    norm.act = nn.PReLU(6)
    return norm


def around(norm: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return stir(nn.Sequential(nn.Conv2d(3, 6, 3), norm, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4)))


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", KNOWN)
def test_known_layers_are_neutral_and_learn(name):
    net, x = around(KNOWN[name]()), batch(8, 3, 8, 8)
    expected = net(x).detach()
    assert torch.equal(da.adapt(net, "adamixbn", alpha=1.0, fold=False)(x), expected)
    torch.testing.assert_close(da.adapt(net, "adamixbn", alpha=1.0)(x), expected, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(da.adapt(net, "adamixbn")(x), expected, atol=1e-3)
    if name != "not affine":
        result = da.adapt(net, "domainadaptor-t", lr=0.1).adapt(x)
        assert not torch.equal(result.logits, result.before)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", KNOWN)
def test_adapted_plain_network_repeats_known_layers(name):
    net, x = around(KNOWN[name]()), batch(8, 3, 8, 8)
    adaptor = da.adapt(net, "adamixbn") if name == "not affine" else da.adapt(net, "domainadaptor-t", lr=0.1)
    plain = adaptor.adapted_network(x)
    assert type(plain[1]) is type(net[1])
    torch.testing.assert_close(plain(x).detach(), adaptor(x), atol=1e-5, rtol=1e-5)


def test_a_layer_with_its_own_forward_is_left_as_it_is_and_listed():
    net = stir(nn.Sequential(nn.Conv2d(3, 6, 3), Own(6), nn.BatchNorm2d(6), nn.Flatten(), nn.Linear(6 * 36, 4)))
    adaptor = da.adapt(net, "adamixbn", alpha=1.0, fold=False)
    left = [layer for layer in adaptor.layers() if not layer.adapts]
    assert [layer.name for layer in left] == ["1"]
    assert "its own forward" in left[0].why
    x = batch(4, 3, 8, 8)
    assert torch.equal(adaptor(x), net(x))


class Called(nn.BatchNorm2d):
    def __call__(self, x):
        return super().__call__(x) + 1


@pytest.mark.parametrize("how", ["instance forward", "own call", "parametrized", "pruned"])
def test_layers_that_compute_otherwise_are_left(how):
    net = stir(
        nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.BatchNorm2d(6), nn.Flatten(), nn.Linear(6 * 36, 4))
    )
    layer = net[1]
    if how == "instance forward":
        layer.forward = lambda x: x + 1
    elif how == "own call":
        layer.__class__ = Called
    elif how == "parametrized":

        class Double(nn.Module):
            def forward(self, weight):
                return weight * 2

        parametrize.register_parametrization(layer, "weight", Double())
    else:
        prune.l1_unstructured(layer, "weight", amount=2)
    adaptor = da.adapt(net, "adamixbn", alpha=1.0, fold=False)
    assert [report.name for report in adaptor.layers() if not report.adapts] == ["1"]
    x = batch(4, 3, 8, 8)
    assert torch.equal(adaptor(x), net(x))


def test_absent_statistics_are_refused_with_the_layer_and_the_remedy():
    net = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6, track_running_stats=False))
    with pytest.raises(UnsupportedNetwork, match=r"'1'.*track_running_stats=True"):
        find_norms(net)


@pytest.mark.parametrize("value", [float("nan"), -1.0])
def test_broken_statistics_are_refused(value):
    net = nn.Sequential(nn.BatchNorm2d(6))
    net[0].running_var[2] = value
    with pytest.raises(UnsupportedNetwork, match="'0'.*not finite, or a variance is negative"):
        find_norms(net)


@pytest.mark.parametrize(
    ("net", "hint"),
    [
        (nn.Sequential(nn.Linear(3, 4)), "it has no norm layers"),
        (nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)), "LayerNorm"),
        (nn.Sequential(nn.Conv2d(3, 4, 1), nn.GroupNorm(2, 4)), "GroupNorm"),
        (nn.Sequential(Own(4)), "its own forward"),
    ],
)
def test_nothing_to_adapt_is_refused(net, hint):
    with pytest.raises(UnsupportedNetwork, match=hint):
        da.adapt(net, "adamixbn")
