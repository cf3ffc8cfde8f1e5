"""A calibrated network against a slow computation that keeps every activation, and what it leaves alone."""

import copy
import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d
from torch.utils.data import DataLoader, TensorDataset

import domainadaptor as da
from domainadaptor.adaptation.calibrate import Calibration
from domainadaptor.errors import BadBatch, BadOption, SmallBatch, UnsupportedNetwork
from domainadaptor.norms.shift import share_of
from tests.conftest import GoldenNet, batch, stir
from tests.methods.literal import network
from tests.norms.test_shift import literal_shift

EXACT = {"atol": 1e-9, "rtol": 1e-9}
IMAGES = batch(40, 3, 12, 12, dtype=torch.float64)


def literal(images, sizes, share=None):
    """The statistics by layer, from all activations of a layer side by side."""
    net = network()
    p = net.state_dict()
    seen = {"bn1": [], "bn2": [], "bn3": []}
    found = {}

    def norm(h, name):
        seen[name] += list(h)
        stacked = torch.stack(seen[name])
        source = [p[f"{name}.running_mean"], p[f"{name}.running_var"]]
        weight = float(share_of(torch.tensor(literal_shift(stacked, source)), len(stacked))) if share is None else share
        values = stacked.transpose(0, 1).flatten(1)
        target = [values.mean(1), values.var(1, correction=1)]
        mean, var = found[name] = [(1 - weight) * s + weight * t for s, t in zip(source, target, strict=True)]
        h = (h - mean.view(1, -1, 1, 1)) / (var.view(1, -1, 1, 1) + 1e-5) ** 0.5
        return h * p[f"{name}.weight"].view(1, -1, 1, 1) + p[f"{name}.bias"].view(1, -1, 1, 1)

    for x in images.split(sizes):
        h = norm(conv2d(x, p["c1.weight"], padding=1), "bn1").clamp(min=0)
        h = norm(conv2d(h, p["c2.weight"], stride=2, padding=1), "bn2").clamp(min=0)
        norm(conv2d(h, p["c3.weight"], padding=1), "bn3")
    return found


@pytest.mark.parametrize("share", [None, 0.3])
@pytest.mark.parametrize("sizes", [[40], [16, 16, 8], [1] * 40])
def test_statistics_are_those_of_all_activations_side_by_side(sizes, share):
    net = network()
    plain = da.calibrate(net, list(IMAGES.split(sizes)), share=share)
    for name, (mean, var) in literal(IMAGES, sizes, share).items():
        torch.testing.assert_close(plain.get_submodule(name).running_mean, mean, **EXACT)
        torch.testing.assert_close(plain.get_submodule(name).running_var, var, **EXACT)
    others = {name: t for name, t in plain.state_dict().items() if "running" not in name}
    assert all(torch.equal(t, net.state_dict()[name]) for name, t in others.items())


def test_the_network_of_the_user_is_not_changed_and_nothing_is_shared():
    net = network().train()
    net.fc.weight.requires_grad_(False)
    held = copy.deepcopy(net.state_dict())
    plain = da.calibrate(net, IMAGES)
    assert net.training
    assert not plain.training
    assert not plain.fc.weight.requires_grad
    assert plain.fc.bias.requires_grad
    storages = {t.data_ptr() for t in net.state_dict().values()}
    assert not storages & {t.data_ptr() for t in plain.state_dict().values()}
    assert all(torch.equal(t, held[name]) for name, t in net.state_dict().items())
    assert not any("forward" in vars(module) for module in [*plain.modules(), *net.modules()])


def test_a_share_of_zero_is_the_source_model_and_of_one_the_images_alone():
    net = network()
    assert all(
        torch.equal(a, b) for a, b in zip(da.calibrate(net, IMAGES, share=0).buffers(), net.buffers(), strict=True)
    )
    norm = nn.Sequential(stir(nn.BatchNorm2d(3)).double())
    plain = da.calibrate(norm, IMAGES, share=1)
    z = plain(IMAGES).transpose(0, 1).flatten(1)
    torch.testing.assert_close(z.mean(1), norm[0].bias.detach(), **EXACT)


def test_without_a_shift_the_network_stays_as_it_is():
    net = GoldenNet().double()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None  # running statistics become the mean over batches
    with torch.no_grad():
        for seed in range(20):
            net.train()(batch(64, 3, 12, 12, seed=seed, dtype=torch.float64))
    plain = da.calibrate(net.eval(), batch(128, 3, 12, 12, seed=99, dtype=torch.float64))
    for name, buffer in net.named_buffers():
        assert torch.equal(buffer, plain.get_buffer(name))


@pytest.mark.parametrize(("size", "most"), [(1, 0.02), (7, 0.02), (40, 0)])
def test_the_batch_size_matters_little(size, most):
    """The first layer is exact; behind it, the first images came while the mixture was still based on few."""
    images = batch(160, 3, 12, 12, seed=3, dtype=torch.float64)
    small, large = (da.calibrate(network(), images.split(n)) for n in (size, 40))
    torch.testing.assert_close(small.bn1.running_var, large.bn1.running_var, **EXACT)
    for name in ("bn2", "bn3"):
        a, b = (plain.get_submodule(name).running_mean for plain in (small, large))
        assert float((a - b).norm() / b.norm()) <= most


def test_any_loader_will_do():
    labels = torch.zeros(40)
    wanted = da.calibrate(network(), IMAGES.split(64)).state_dict()
    loaders = [
        IMAGES,
        DataLoader(TensorDataset(IMAGES, labels), batch_size=64),
        ({"pixel_values": part} for part in IMAGES.split(64)),
        [IMAGES.float(), IMAGES[:0]],
    ]
    for loader in loaders:
        found = da.calibrate(network(), loader).state_dict()
        assert all(torch.allclose(found[name], t, atol=1e-6) for name, t in wanted.items())


def test_images_are_not_kept():
    calibration, kept = Calibration(network()), []
    for part in IMAGES.split(8):
        images = part.clone()
        calibration.add(images)
        kept.append(weakref.ref(images))
        del images
    gc.collect()
    assert not any(reference() is not None for reference in kept)
    sizes = {name: sum(t.numel() for t in sums[3:]) for name, sums in calibration._sums.items()}
    assert sizes == {"bn1": 4 * 8, "bn2": 4 * 16, "bn3": 4 * 16}


def test_a_batch_that_fails_leaves_nothing():
    calibration, other = Calibration(network()), Calibration(network())
    broken = IMAGES[:8].clone()
    broken[3, 0, 0, 0] = torch.nan
    for one in (calibration, other):
        one.add(IMAGES)
    with pytest.raises(BadBatch, match="positions 3"):
        calibration.add(broken)
    with pytest.raises(BadBatch, match="'c1' takes"):
        calibration.add(IMAGES[:, :2])
    assert all(
        torch.equal(a, b) for a, b in zip(calibration.network().buffers(), other.network().buffers(), strict=True)
    )


def test_a_batch_that_fails_half_way_leaves_nothing():
    calibration = Calibration(nn.Sequential(network().bn1, _Overflow(), nn.BatchNorm2d(8).double().eval()))
    with pytest.raises(BadBatch, match="not finite at layer '2'"):
        calibration.add(batch(8, 8, 4, 4, dtype=torch.float64))
    assert calibration.layers() == []


class _Overflow(nn.Module):
    def forward(self, x):
        return x * 1e308 * 1e308


def test_what_cannot_be_used_is_refused_with_a_reason():
    with pytest.raises(BadBatch, match="got none"):
        da.calibrate(network(), [])
    with pytest.raises(BadBatch, match="batch 0 of the loader"):
        da.calibrate(network(), ["images"])
    with pytest.raises(BadOption, match=r"from 0 to 1.*got 2"):
        da.calibrate(network(), IMAGES, share=2)
    with pytest.raises(UnsupportedNetwork, match="no batch normalization"):
        da.calibrate(nn.Linear(3, 2), IMAGES)
    with pytest.warns(SmallBatch, match="5 images are few"):
        da.calibrate(network(), IMAGES[:5])


class _Twice(nn.Module):
    """Uses one layer twice, once through `forward`, and another never."""

    def __init__(self):
        super().__init__()
        self.bn, self.unused = (stir(nn.BatchNorm2d(3)).double() for _ in range(2))

    def forward(self, x):
        return self.bn.forward(2 * self.bn(input=x))


def test_a_layer_that_is_used_twice_is_measured_twice_and_an_unused_one_is_left():
    calibration = Calibration(_Twice(), share=1.0)
    calibration.add(IMAGES)
    assert [layer.name for layer in calibration.layers()] == ["bn"]
    plain, net = calibration.network(), _Twice()
    assert torch.equal(plain.unused.running_mean, net.unused.running_mean)
    once = da.calibrate(nn.Sequential(net.bn), IMAGES, share=1.0)
    both = torch.cat([IMAGES, 2 * once(IMAGES)]).transpose(0, 1).flatten(1)
    torch.testing.assert_close(plain.bn.running_mean, both.mean(1), **EXACT)
    torch.testing.assert_close(plain.bn.running_var, both.var(1, correction=1), **EXACT)


def test_single_values_per_channel_keep_the_source_until_there_are_two():
    net = nn.Sequential(stir(nn.BatchNorm1d(3)).double())
    vectors = IMAGES[:20, :, 0, 0]
    with pytest.warns(SmallBatch):
        one = da.calibrate(net, vectors[:1], share=0.5)
    assert torch.equal(one[0].running_var, net[0].running_var)
    plain = da.calibrate(net, vectors.split(1), share=0.5)
    torch.testing.assert_close(
        plain[0].running_var, 0.5 * net[0].running_var + 0.5 * vectors.var(0, correction=1), **EXACT
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_statistics_keep_their_precision_and_inference_mode_works(dtype):
    net = network().to(dtype)
    with torch.inference_mode():
        plain = da.calibrate(net, IMAGES)
    assert plain.bn1.running_mean.dtype == dtype
    assert not plain.bn1.running_mean.is_inference()
    assert plain(IMAGES[:1].to(dtype)).isfinite().all()
