"""MEMO against its formula written out, image by image."""

import pytest
import torch
from torch import nn

import domainadaptor as da
from domainadaptor.augmentation.augmix import augmix_views
from domainadaptor.errors import BadOption, UnsupportedNetwork
from tests.conftest import batch
from tests.methods.literal import gradients, leaves, logits, network, probabilities, weights_of, with_moments

IMAGES = batch(4, 3, 12, 12, dtype=torch.float64)
MEAN, STD = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]], dtype=torch.float64).view(2, 3, 1, 1)


def literal(image, *, views, area, alpha, lr, steps, seed, decay):
    net = network()
    weights = weights_of(net)

    def mixed(name, h):
        bn, seen = net.get_submodule(name), h.detach()  # statistics are written to buffers: no gradient passes them
        mean = alpha * bn.running_mean + (1 - alpha) * seen.mean((0, 2, 3))
        var = alpha * bn.running_var + (1 - alpha) * seen.var((0, 2, 3), correction=1)
        return with_moments(h, mean, var)

    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        x = (augmix_views(image * STD + MEAN, views, generator, area) - MEAN) / STD
        weights = leaves(weights)
        mean = sum(probabilities(logits(weights, x, mixed))[v] for v in range(views)) / views
        loss = -sum(p * p.log() for p in mean)
        grads = gradients(loss, weights)
        weights = {name: w.detach() - lr * (grads[name] + decay * w.detach()) for name, w in weights.items()}
    return logits(weights, image, mixed), loss.item()


@pytest.mark.parametrize(
    "options",
    [
        {"views": 5, "area": 0.08, "alpha": 16 / 17, "lr": 0.5, "steps": 1, "seed": 0},
        {"views": 3, "area": 0.5, "alpha": 0.5, "lr": 0.2, "steps": 3, "seed": 4},
    ],
)
def test_memo_is_its_literal_form(options):
    decay = 0.01
    result = da.adapt(network(), "memo", weight_decay=decay, **options).adapt(IMAGES)
    expected = [literal(image, decay=decay, **options) for image in IMAGES.split(1)]
    torch.testing.assert_close(result.logits, torch.cat([z for z, _ in expected]), atol=1e-9, rtol=1e-9)
    assert result.loss == pytest.approx(sum(loss for _, loss in expected) / 4, rel=1e-9)
    assert (result.logits - result.before).abs().max() > 1e-3


def test_an_answer_does_not_depend_on_the_batch():
    adaptor = da.adapt(network(), "memo", views=4, lr=0.1)
    whole = adaptor(IMAGES)
    torch.testing.assert_close(adaptor(IMAGES[[2, 0]]), whole[[2, 0]], atol=1e-12, rtol=1e-12)


def test_a_plain_network_is_that_of_one_image():
    adaptor = da.adapt(network(), "memo", views=4, lr=0.1)
    plain = adaptor.adapted_network(IMAGES[1:2])
    torch.testing.assert_close(plain(IMAGES[1:2]).detach(), adaptor(IMAGES[1:2]))
    with pytest.raises(UnsupportedNetwork, match="Each of the 4 images"):
        adaptor.adapted_network(IMAGES)
    torch.testing.assert_close(adaptor(IMAGES[1:2]), plain(IMAGES[1:2]).detach())


class Fragile(nn.Module):
    """Not a number for dark images, once its weights have changed."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, x):
        z = self.inner(x)
        moved = (self.inner.fc.bias.detach() - self.inner.fc.bias.detach().round(decimals=6)).abs().max() > 1e-12
        return torch.where((x.mean((1, 2, 3)) < -5).unsqueeze(1) & moved, float("nan"), z)


def test_one_bad_image_does_not_spoil_the_others():
    net = Fragile()
    with torch.no_grad():
        net.inner.fc.bias.copy_(net.inner.fc.bias.round(decimals=6))
    x = IMAGES.clone()
    x[2] -= 20
    result = da.adapt(net, "memo", views=3, lr=0.1, mean=0.5, std=0.25).adapt(x)
    assert not result.fell_back
    assert "source model's for images 2" in result.note
    torch.testing.assert_close(result.logits[2:3], net(x[2:3]).detach())
    assert not torch.allclose(result.logits[:2], result.before[:2])
    alone = da.adapt(net, "memo", views=3, lr=0.1, mean=0.5, std=0.25).adapt(x[2:3])
    assert alone.fell_back


def test_networks_without_batch_norm_learn_too():
    timm = pytest.importorskip("timm")
    net = timm.create_model("vit_tiny_patch16_224", num_classes=5, img_size=32, depth=1).eval()
    with torch.no_grad():
        net.head.weight.normal_(0, 0.3)
    x = batch(2, 3, 32, 32)
    result = da.adapt(net, "memo", views=3, optimizer="adamw", lr=1e-3, weight_decay=0.01).adapt(x)
    torch.testing.assert_close(result.before, net(x).detach(), atol=1e-4, rtol=1e-4)
    assert not torch.allclose(result.logits, result.before)


def test_mistakes_are_explained():
    for options, hint in [
        ({"views": 0}, "at least 1"),
        ({"alpha": 1.5}, "from 0 to 1"),
        ({"area": 0}, "above 0"),
        ({"optimizer": "adam"}, "did you mean 'adamw'"),
        ({"steps": 0}, "at least 1"),
        ({"reset_every": 1}, "has no option 'reset_every'"),
    ]:
        with pytest.raises(BadOption, match=hint):
            da.adapt(network(), "memo", **options)
