import pytest
import torch
from torch import nn

import domainadaptor as da
from domainadaptor.norms.mixed import MixedNorm
from domainadaptor.norms.recognize import find_norms
from tests.conftest import batch, stir


def stand_in(bn: nn.Module, **options) -> MixedNorm:
    return MixedNorm(find_norms(bn)[0][""], **{"alpha": "code", "fold": True, "variance": "unbiased", **options})


def outputs(norm: MixedNorm, x, times: int = 1):
    with torch.no_grad():
        for _ in range(times):
            y = norm(x)
    return y


SHAPES = {nn.BatchNorm1d: (8, 6), nn.BatchNorm2d: (8, 6, 5, 4), nn.BatchNorm3d: (8, 6, 3, 4, 2)}


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("alpha", ["code", "paper", "code-reversed", 0.0, 0.3, 1.0])
@pytest.mark.parametrize("variance", ["unbiased", "biased"])
def test_folding_leaves_the_output_unchanged(kind, alpha, variance):
    bn, x = stir(kind(6).double()), batch(*SHAPES[kind], dtype=torch.float64)
    options = {"alpha": alpha, "variance": variance}
    mixed = outputs(stand_in(bn, fold=False, **options), x)
    for times in (1, 2):
        torch.testing.assert_close(outputs(stand_in(bn, **options), x, times), mixed, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("kind", SHAPES)
def test_alpha_one_is_the_trained_layer_to_the_last_bit(kind):
    bn, x = stir(kind(6)), batch(*SHAPES[kind])
    assert torch.equal(outputs(stand_in(bn, alpha=1.0, fold=False), x), bn(x))
    torch.testing.assert_close(outputs(stand_in(bn, alpha=1.0), x), bn(x).detach())


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("fold", [True, False])
def test_alpha_zero_with_biased_variance_is_batch_norm_in_training(kind, fold):
    bn, x = stir(kind(6)), batch(*SHAPES[kind])
    expected = nn.functional.batch_norm(x, None, None, bn.weight, bn.bias, training=True, eps=bn.eps)
    norm = stand_in(bn, alpha=0.0, fold=fold, variance="biased")
    torch.testing.assert_close(outputs(norm, x), expected.detach())


@pytest.mark.parametrize(("affine", "parts"), [(True, "both"), (False, "none"), (True, "scale"), (True, "shift")])
@pytest.mark.parametrize("alpha", ["code", 1.0])
def test_scale_and_shift_may_be_absent(affine, parts, alpha):
    bn = stir(nn.BatchNorm2d(6, affine=affine))
    if parts == "scale":
        bn.bias = None
    if parts == "shift":
        bn.weight = None
    x = batch(8, 6, 5, 4)
    norm = stand_in(bn, alpha=alpha)
    torch.testing.assert_close(
        outputs(norm, x), outputs(stand_in(bn, alpha=alpha, fold=False), x), atol=1e-5, rtol=1e-5
    )
    assert norm.learns == {"both": ("scale", "shift"), "none": (), "scale": ("scale",), "shift": ("shift",)}[parts]
    if alpha == 1.0:
        assert torch.equal(outputs(stand_in(bn, alpha=1.0, fold=False), x), bn(x).detach())


def test_one_image_gives_zero_under_paper_and_a_half_under_code():
    bn, x = stir(nn.BatchNorm2d(6).double()), batch(1, 6, 5, 4, dtype=torch.float64)
    for rule, expected in {"paper": 0.0, "code": 0.5, "paper-reversed": 1.0, "code-reversed": 0.5}.items():
        norm = stand_in(bn, alpha=rule, fold=False)
        outputs(norm, x)
        assert float(norm.uses[0].alpha) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("rule", ["code", "paper", 0.0, "code-reversed"])
@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("grad", [True, False])
def test_one_value_per_channel_keeps_the_source(rule, fold, grad):
    bn, x = stir(nn.BatchNorm2d(6)), batch(1, 6, 1, 1)
    norm = stand_in(bn, alpha=rule, fold=fold)
    with torch.set_grad_enabled(grad):
        assert torch.equal(norm(x), bn(x))
        assert torch.equal(norm(x), bn(x))
    assert norm.uses[0].single
    assert norm.uses[0].alpha == 1.0


@pytest.mark.parametrize("rule", ["code", "paper"])
def test_identical_statistics_give_alpha_one(rule):
    """Blank images and a source of zeros: every distance is 0, and 0 / 0 must keep the source."""
    bn = nn.BatchNorm2d(6).eval()
    bn.running_var.zero_()
    norm = stand_in(bn, alpha=rule, fold=False)
    outputs(norm, torch.zeros(4, 6, 5, 4))
    assert float(norm.uses[0].alpha) == 1.0


@pytest.mark.parametrize("variance", ["unbiased", "biased"])
def test_gradcheck_through_the_folded_layer(variance):
    bn, x = stir(nn.BatchNorm2d(3).double()), batch(4, 3, 2, 3, dtype=torch.float64)
    norm = stand_in(bn, variance=variance)
    norm(x)

    def layer(x, scale, shift):
        return torch.func.functional_call(norm, {"scale": scale, "shift": shift}, (x,))

    leaves = [t.detach().clone().requires_grad_() for t in (x, norm.scale, norm.shift)]
    assert torch.autograd.gradcheck(layer, leaves)


def test_gradient_of_the_unfolded_layer_flows_through_batch_statistics():
    bn, x = stir(nn.BatchNorm2d(3).double()), batch(4, 3, 2, 3, dtype=torch.float64)
    norm = stand_in(bn, alpha=0.4, fold=False)
    assert torch.autograd.gradcheck(norm, [x.requires_grad_()])


def test_eps_is_the_layers_own():
    bn, x = stir(nn.BatchNorm2d(6, eps=0.5)), batch(8, 6, 5, 4)
    torch.testing.assert_close(outputs(stand_in(bn), x), outputs(stand_in(bn, fold=False), x), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(outputs(stand_in(bn, alpha=1.0), x), bn(x).detach(), atol=1e-5, rtol=1e-5)


def test_reset_undoes_folding():
    bn, x = stir(nn.BatchNorm2d(6)), batch(8, 6, 5, 4)
    norm = stand_in(bn)
    first = outputs(norm, x)
    outputs(norm, batch(8, 6, 5, 4, seed=9))
    norm.reset()
    assert torch.equal(norm.scale, bn.weight)
    assert torch.equal(norm.shift, bn.bias)
    assert torch.equal(outputs(norm, x), first)


def test_channels_last_is_kept():
    bn = stir(nn.BatchNorm2d(6))
    x = batch(8, 6, 5, 4).contiguous(memory_format=torch.channels_last)
    for options in ({}, {"fold": False}):
        for grad in (True, False):
            with torch.set_grad_enabled(grad):
                assert stand_in(bn, **options)(x).is_contiguous(memory_format=torch.channels_last)


def test_statistics_of_half_precision_are_computed_in_float32():
    bn = stir(nn.BatchNorm2d(6)).bfloat16()
    x = (100 + batch(64, 6, 8, 8)).bfloat16()
    norm = stand_in(bn, alpha=0.0, fold=False)
    y = outputs(norm, x)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(norm.uses[0].moments.var, x.double().var((0, 2, 3)).float(), rtol=1e-4, atol=0)


def test_bfloat16_layer_is_neutral_at_alpha_one():
    bn, x = stir(nn.BatchNorm2d(6)).bfloat16(), batch(8, 6, 5, 4).bfloat16()
    assert torch.equal(outputs(stand_in(bn, alpha=1.0, fold=False), x), bn(x))


def test_adabn_is_alpha_zero():
    net = stir(nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.Flatten(), nn.Linear(6 * 16, 3)))
    x = batch(8, 3, 6, 6)
    for variance in ("biased", "unbiased"):
        expected = da.adapt(net, "adabn", variance=variance)(x)
        for fold in (True, False):
            got = da.adapt(net, "adamixbn", alpha=0, variance=variance, fold=fold)(x)
            torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
