"""DeYO against its loop written out, image by image, with the shuffles done patch by patch."""

import math

import pytest
import torch

import domainadaptor as da
from domainadaptor.errors import BadBatch, BadOption
from domainadaptor.methods.deyo import shuffle_patches
from tests.conftest import batch
from tests.methods.literal import probabilities
from tests.methods.sure_network import descend, forward, learned, network, surprise, varied

BATCHES = [varied(10, seed) for seed in range(5)]


def patchwork(images, generator, patches=4):
    """Each patch is copied on its own."""
    out = torch.empty_like(images)
    side = images.shape[-1] // patches
    for image, target in zip(images, out, strict=True):
        for to, come in enumerate(torch.randperm(patches * patches, generator=generator).tolist()):
            (r, c), (s, d) = divmod(to, patches), divmod(come, patches)
            for i in range(side):
                for j in range(side):
                    target[:, r * side + i, c * side + j] = image[:, s * side + i, d * side + j]
    return out


def literal(batches, margin, drop, weight_margin=0.4, predict="before", lr=0.05, patches=4):
    net = network()
    speed = [torch.zeros_like(p) for p in learned(net)]
    generator = torch.Generator().manual_seed(0)
    answers, counts = [], []
    for x in batches:
        z = forward(net, x)
        sure = [at for at, row in enumerate(z) if surprise(row).item() < margin * math.log(7)]
        terms = []
        if sure:
            with torch.no_grad():
                other = forward(net, patchwork(x[sure], generator, patches))
            for at, row in zip(sure, other, strict=True):
                own = int(z[at].argmax())
                lost = (probabilities(z[at])[own] - probabilities(row)[own]).item()
                if lost > drop:
                    h = surprise(z[at])
                    terms.append((math.exp(weight_margin * math.log(7) - h.item()) + math.exp(lost)) * h)
        if terms:
            descend(learned(net), torch.autograd.grad(sum(terms) / len(terms), learned(net)), speed, lr, 0.9)
            if predict == "after":
                z = forward(net, x)
        answers.append(z.detach())
        counts.append((len(sure), len(terms)))
    return answers, counts


@pytest.mark.parametrize("predict", ["before", "after"])
@pytest.mark.parametrize(("margin", "drop"), [(0.5, 0.2), (0.6, 0.05), (0.6, -1.0)])
def test_deyo_is_its_literal_loop(predict, margin, drop):
    adaptor = da.adapt(network(), "deyo", margin=margin, drop=drop, predict=predict, lr=0.05)
    expected, counts = literal(BATCHES, margin, drop, predict=predict)
    assert 0 < sum(kept for _, kept in counts) <= sum(sure for sure, _ in counts) < 50
    assert drop < 0 or any(kept < sure for sure, kept in counts)
    for x, z, (_, kept) in zip(BATCHES, expected, counts, strict=True):
        result = adaptor.adapt(x)
        torch.testing.assert_close(result.logits, z, atol=1e-9, rtol=1e-9)
        assert (result.loss is None) == (kept == 0)


@pytest.mark.parametrize(("patches", "weight_margin"), [(3, 0.4), (4, 0.7)])
def test_its_numbers_may_be_others(patches, weight_margin):
    adaptor = da.adapt(network(), "deyo", margin=0.9, drop=0.0, patches=patches, weight_margin=weight_margin, lr=0.05)
    expected, _ = literal(BATCHES, 0.9, 0.0, weight_margin, patches=patches)
    torch.testing.assert_close([adaptor(x) for x in BATCHES], expected, atol=1e-9, rtol=1e-9)


def test_patches_move_whole():
    x = batch(3, 3, 12, 8, dtype=torch.float64)
    y = shuffle_patches(x, 4, torch.Generator().manual_seed(3))
    for image, other in zip(x, y, strict=True):
        cut = [
            {
                tuple(t.flatten().tolist())
                for t in i.unfold(1, 3, 3).unfold(2, 2, 2).permute(1, 2, 0, 3, 4).flatten(0, 1)
            }
            for i in (image, other)
        ]
        assert cut[0] == cut[1]
        assert not torch.equal(image, other)
    assert not torch.equal(y[0].argsort(), y[1].argsort())


@pytest.mark.parametrize(("height", "width"), [(1, 1), (2, 3), (1, 9), (13, 10), (32, 30)])
def test_any_size_can_be_shuffled(height, width):
    x = batch(2, 3, height, width)
    y = shuffle_patches(x, 4, torch.Generator().manual_seed(0))
    assert y.shape == x.shape
    assert torch.isfinite(y).all()
    if height * width == 1:
        assert torch.equal(x, y)
    with pytest.raises(BadBatch, match=r"\(N, C, H, W\)"):
        shuffle_patches(x.flatten(1), 4, torch.Generator())


def test_the_last_stage_does_not_learn():
    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(0)
    net = torchvision.models.resnet18(weights=None, num_classes=5).eval()
    adaptor = da.adapt(net, "deyo", margin=1.0, drop=-1.0, lr=0.1)
    adaptor(batch(4, 3, 32, 32))
    state, source = adaptor.state_dict(), net.state_dict()
    assert torch.equal(state["layer4.1.bn2.weight"], source["layer4.1.bn2.weight"])
    assert not torch.equal(state["layer3.1.bn2.weight"], source["layer3.1.bn2.weight"])


def test_mistakes_are_explained():
    for options, hint in [
        ({"drop": 2}, "from -1 to 1"),
        ({"patches": 0}, "at least 1"),
        ({"skip": "nowhere"}, "not a layer of the network"),
        ({"seed": -1}, "at least 0"),
    ]:
        with pytest.raises(BadOption, match=hint):
            da.adapt(network(), "deyo", **options)
