"""Against numbers that the authors' own program computed, in float64."""

import pytest
import torch
from torch import nn

import domainadaptor as da
from domainadaptor.adaptation import losses
from domainadaptor.norms.alpha import image_alphas
from domainadaptor.norms.mixed import MixedNorm
from domainadaptor.norms.moments import Moments, batch_moments, image_moments
from domainadaptor.norms.recognize import find_norms

EXACT = {"atol": 1e-9, "rtol": 1e-9}
LOSSES = {"em": "entropy", "slr": "slr", "gem-t": "gem-t", "gem-skd": "gem-skd"}


def layer_of(golden, case, **options):
    bn = nn.BatchNorm2d(5).double().eval()
    with torch.no_grad():
        for name in ("weight", "bias", "running_mean", "running_var"):
            getattr(bn, name).copy_(golden[f"layer/{case}/{name}"])
    found, _ = find_norms(bn)
    return MixedNorm(found[""], **{"alpha": "code", "fold": True, "variance": "unbiased", **options})


@pytest.mark.parametrize("case", ["near", "far"])
@pytest.mark.parametrize("grad", [False, True])
def test_layer(golden, case, grad):
    x = golden[f"layer/{case}/x"]
    folded, mixed = layer_of(golden, case), layer_of(golden, case, fold=False)
    with torch.set_grad_enabled(grad):
        torch.testing.assert_close(folded(x), golden[f"layer/{case}/y_transformed"], **EXACT)
        torch.testing.assert_close(folded(x), golden[f"layer/{case}/y_transformed"], **EXACT)  # folded already
        torch.testing.assert_close(mixed(x), golden[f"layer/{case}/y_mixed"], **EXACT)
    torch.testing.assert_close(folded.scale.data, golden[f"layer/{case}/transformed_weight"], **EXACT)
    torch.testing.assert_close(folded.shift.data, golden[f"layer/{case}/transformed_bias"], **EXACT)
    torch.testing.assert_close(torch.as_tensor(mixed.uses[0].alpha), golden[f"layer/{case}/alpha"], **EXACT)


@pytest.mark.parametrize("case", ["near", "far"])
def test_alpha_of_each_image(golden, case):
    x = golden[f"layer/{case}/x"]
    images = image_moments(x)
    batch = batch_moments(images)
    space, count = x[0, 0].numel(), x[:, 0].numel()
    images = Moments(images.mean, images.var * space / (space - 1))
    batch = Moments(batch.mean, batch.var * count / (count - 1))
    source = Moments(golden[f"layer/{case}/running_mean"], golden[f"layer/{case}/running_var"])
    alpha = image_alphas("code", images, batch, source, deviations=True)
    torch.testing.assert_close(alpha, golden[f"layer/{case}/alpha_per_image"], **EXACT)


@pytest.mark.parametrize("case", ["soft", "confident"])
@pytest.mark.parametrize("name", ["em", "slr", "gem-t", "gem-skd", "gem-aug"])
def test_loss_and_gradient(golden, case, name):
    z = golden[f"loss/{case}/logits"].clone().requires_grad_()
    heat = losses.temperature(z, "code", 2.0)
    per_image = {
        "em": lambda: losses.entropy(z),
        "slr": lambda: losses.slr(z),
        "gem-t": lambda: losses.gem_t(z, heat),
        "gem-skd": lambda: losses.gem_skd(z, heat),
        "gem-aug": lambda: losses.gem_toward(golden[f"loss/{case}/aug_logits"].softmax(1), z, heat),
    }[name]()
    loss = per_image.mean()
    (gradient,) = torch.autograd.grad(loss, z)
    torch.testing.assert_close(loss.detach(), golden[f"loss/{case}/{name}"], **EXACT)
    torch.testing.assert_close(gradient, golden[f"loss/{case}/{name}/grad"], **EXACT)


@pytest.mark.parametrize("fold", [True, False])
def test_adamixbn_logits(golden, golden_net, fold):
    adaptor = da.adapt(golden_net, "adamixbn", fold=fold)
    torch.testing.assert_close(adaptor(golden["network/x"]), golden["network/logits_adamixbn"], **EXACT)


def test_source_logits(golden, golden_net):
    torch.testing.assert_close(
        da.adapt(golden_net, "source")(golden["network/x"]), golden["network/logits_source"], **EXACT
    )


@pytest.mark.parametrize("lr", [0.001, 0.05])
@pytest.mark.parametrize("name", LOSSES)
def test_adapted_logits_and_loss(golden, golden_net, name, lr):
    result = da.adapt(golden_net, "adamixbn", loss=LOSSES[name], lr=lr).adapt(golden["network/x"])
    torch.testing.assert_close(result.logits, golden[f"network/{name}/lr{lr}/logits_adapted"], **EXACT)
    torch.testing.assert_close(result.before, golden["network/logits_adamixbn"], **EXACT)
    assert result.loss == pytest.approx(float(golden[f"network/{name}/loss"]), rel=1e-9)


@pytest.mark.parametrize(("method", "name"), [("domainadaptor-t", "gem-t"), ("domainadaptor-skd", "gem-skd")])
def test_named_methods_are_those_losses(golden, golden_net, method, name):
    logits = da.adapt(golden_net, method)(golden["network/x"])
    torch.testing.assert_close(logits, golden[f"network/{name}/lr0.001/logits_adapted"], **EXACT)
