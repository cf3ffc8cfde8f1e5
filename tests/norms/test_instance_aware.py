"""Instance-aware batch norm against its formulas, written with loops over images, channels and pixels."""

import math

import pytest
import torch
from torch import Tensor, nn

import domainadaptor as da
from domainadaptor.errors import UnsupportedNetwork
from domainadaptor.norms.instance_aware import InstanceAwareBatchNorm2d, make_instance_aware
from tests.conftest import batch, stir


def layer(channels: int = 3, **options) -> InstanceAwareBatchNorm2d:
    return stir(InstanceAwareBatchNorm2d(channels, **options)).double()


def mixed_images(seed: int = 0) -> Tensor:
    """Some images like the others, some far off, so that the band matters."""
    x = batch(5, 3, 4, 5, seed=seed, dtype=torch.float64)
    x[1] = x[1] * 6 + 9
    x[2, 1] = x[2, 1] * 0.05
    x[3] -= 30
    return x


def mean_of(values: list[float]) -> float:
    return sum(values) / len(values)


def variance_of(values: list[float]) -> float:
    mean = mean_of(values)
    return sum((v - mean) ** 2 for v in values) / (len(values) - 1)


def shrunk(distance: float, band: float) -> float:
    return math.copysign(max(abs(distance) - band, 0.0), distance)


def literal(norm: InstanceAwareBatchNorm2d, x: Tensor, training: bool) -> Tensor:
    out = torch.empty_like(x)
    pixels = x.shape[2] * x.shape[3]
    for c in range(x.shape[1]):
        mean, var = float(norm.running_mean[c]), float(norm.running_var[c])
        if training:
            every = [v for n in range(len(x)) for v in x[n, c].flatten().tolist()]
            mean, var = mean_of(every), variance_of(every)
        for n in range(len(x)):
            own = x[n, c].flatten().tolist()
            mean_band = norm.band * math.sqrt((var + norm.eps) / pixels)
            var_band = norm.band * (var + norm.eps) * math.sqrt(2 / (pixels - 1))
            here = mean + shrunk(mean_of(own) - mean, mean_band)
            spread = max(var + shrunk(variance_of(own) - var, var_band), 0.0)
            for row in range(x.shape[2]):
                for column in range(x.shape[3]):
                    value = (float(x[n, c, row, column]) - here) / math.sqrt(spread + norm.eps)
                    if norm.affine:
                        value = value * norm.weight[c].item() + norm.bias[c].item()
                    out[n, c, row, column] = value
    return out


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("band", [0.0, 0.7, 4.0])
def test_equals_the_formulas(band, training, affine):
    norm = layer(affine=affine).train(training)
    norm.band = band
    x = mixed_images()
    expected = literal(norm, x, training)  # before the pass: in train mode it changes the running statistics
    torch.testing.assert_close(norm(x), expected, atol=1e-10, rtol=1e-10)


def test_images_within_the_band_are_normalized_by_the_batch_and_others_are_not():
    norm, x = layer().eval(), mixed_images()
    norm.running_mean.fill_(0.4)
    norm.running_var.fill_(1.5**2)
    plain = nn.functional.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps)
    same = [[torch.allclose(norm(x)[n, c], plain[n, c]) for c in range(3)] for n in range(5)]
    assert same == [[True] * 3, [False] * 3, [True] * 3, [False] * 3, [True] * 3]


def test_an_infinite_band_is_batch_norm():
    norm, x = layer(), mixed_images()
    norm.band = 1e12
    plain = nn.BatchNorm2d(3).double()
    plain.load_state_dict(norm.state_dict())
    torch.testing.assert_close(norm.eval()(x), plain.eval()(x), atol=1e-10, rtol=1e-10)
    # In train mode the authors' variance is the unbiased one, which torch only tracks.
    got, values = norm.train()(x), x.transpose(0, 1).flatten(1)
    scale = norm.weight / (values.var(1, unbiased=True) + norm.eps).sqrt()
    expected = (x - values.mean(1).view(-1, 1, 1)) * scale.view(-1, 1, 1) + norm.bias.view(-1, 1, 1)
    torch.testing.assert_close(got, expected, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_running_statistics_and_names_are_batch_norms(momentum):
    norm, plain = InstanceAwareBatchNorm2d(3, momentum=momentum), nn.BatchNorm2d(3, momentum=momentum)
    assert list(norm.state_dict()) == list(plain.state_dict())
    for seed in range(3):
        x = mixed_images(seed).float()
        norm(x)
        plain(x)
    for name, buffer in plain.named_buffers():
        torch.testing.assert_close(norm.get_buffer(name), buffer)


@pytest.mark.parametrize("training", [True, False])
def test_one_pixel_has_no_variance_of_its_own_and_is_batch_norm(training):
    norm, plain = layer().train(training), nn.BatchNorm2d(3).double().train(training)
    plain.load_state_dict(norm.state_dict())
    x = batch(6, 3, 1, 1, dtype=torch.float64)
    assert torch.equal(norm(x), plain(x))
    assert torch.equal(norm.running_var, plain.running_var)


def test_an_image_without_statistics_to_run_on_is_normalized_by_its_batch():
    norm = InstanceAwareBatchNorm2d(3, track_running_stats=False).double().eval()
    x = mixed_images()
    assert torch.equal(norm(x), norm.train()(x))


@pytest.mark.parametrize("training", [True, False])
def test_gradients(training):
    norm = layer().train(training)
    x = mixed_images().requires_grad_()

    def run(x, weight, bias):
        return torch.func.functional_call(norm, {"weight": weight, "bias": bias}, (x,))

    assert torch.autograd.gradcheck(run, (x, norm.weight, norm.bias))


def test_a_constant_channel_has_a_finite_gradient():
    x = mixed_images()
    x[:, 1] = 0.5
    x.requires_grad_()
    layer().train()(x).square().sum().backward()
    assert bool(torch.isfinite(x.grad).all())


def test_mixed_precision_keeps_full_statistics():
    norm = InstanceAwareBatchNorm2d(3).train()
    x = mixed_images().bfloat16()
    out = norm(x)
    assert out.dtype == torch.bfloat16
    expected = InstanceAwareBatchNorm2d(3).train()(x.float())
    torch.testing.assert_close(out.float(), expected, atol=0.02, rtol=0.02)


def test_a_network_keeps_its_tensors_and_its_answer_where_no_image_is_far_off():
    find_network = pytest.importorskip("domainadaptor.lab.networks.zoo", exc_type=ImportError).find_network
    network = stir(find_network("resnet20").build(5))
    held, x = dict(network.state_dict()), batch(4, 3, 16, 16)
    before = network(x)
    make_instance_aware(network)
    layers = [m for m in network.modules() if isinstance(m, nn.BatchNorm2d)]
    assert len(layers) == 19
    assert all(type(m) is InstanceAwareBatchNorm2d for m in layers)
    assert all(tensor.data_ptr() == held[name].data_ptr() for name, tensor in network.state_dict().items())
    assert not torch.allclose(network(x), before)
    for m in layers:
        m.band = 1e12
    torch.testing.assert_close(network(x), before, atol=1e-5, rtol=1e-5)


def test_timms_layers_keep_their_activation():
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    network = stir(timm.create_model("tf_efficientnet_lite0", num_classes=5)).double()
    x = batch(2, 3, 64, 64, dtype=torch.float64)
    before = network(x)
    make_instance_aware(network)
    for m in network.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.band = 1e12
    torch.testing.assert_close(network(x), before, atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("norm", [nn.SyncBatchNorm(3), nn.GroupNorm(1, 3)])
def test_other_norms_are_refused(norm):
    with pytest.raises(UnsupportedNetwork, match="cannot be made instance-aware.*--norm batch"):
        make_instance_aware(nn.Sequential(nn.Conv2d(3, 3, 1), norm))


def test_methods_that_mix_statistics_say_what_to_use_instead():
    find_network = pytest.importorskip("domainadaptor.lab.networks.zoo", exc_type=ImportError).find_network
    network = stir(find_network("resnet20").build(5))
    make_instance_aware(network)
    with pytest.raises(UnsupportedNetwork, match=r"InstanceAware.*its own forward.*source.*--norm batch.*16 more"):
        da.adapt(network, "domainadaptor-t")
    x = batch(2, 3, 16, 16)
    assert torch.equal(da.adapt(network, "source")(x), network(x))
    partly = nn.Sequential(nn.Conv2d(3, 3, 1), InstanceAwareBatchNorm2d(3), nn.BatchNorm2d(3), nn.Flatten()).eval()
    left = [report for report in da.adapt(partly, "adamixbn").layers() if not report.adapts]
    assert [report.name for report in left] == ["1"]
    assert "use the method note" in left[0].why
