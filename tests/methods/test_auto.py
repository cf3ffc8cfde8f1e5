"""auto against its formulas in loops: shift, share and mean over the views."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import domainadaptor as da
from domainadaptor.augmentation.crops import zoomed
from tests.conftest import GoldenNet, batch, stir

IMAGES = batch(8, 3, 20, 18, dtype=torch.float64)
VIEWS = {"one": [(False, 0.0)], "some": [(False, 0.0), (False, 0.06), (True, 0.0)]}
VIEWS["most"] = [(mirror, margin) for mirror in (False, True) for margin in (0.0, 0.06, -0.06)]


def network():
    torch.manual_seed(0)
    return stir(GoldenNet()).double()


def literal_share(h, mean, var):
    """The share of the batch, image by image and channel by channel."""
    n, channels = h.shape[:2]
    joint = [(h[:, c].mean().item(), h[:, c].var().item()) for c in range(channels)]
    spread = distance = 0.0
    for c, (m, v) in enumerate(joint):
        distance += (mean[c].item() - m) ** 2 + (math.sqrt(var[c].item()) - math.sqrt(v)) ** 2
        for image in h[:, c]:
            spread += ((image.mean().item() - m) ** 2 + (image.var().sqrt().item() - math.sqrt(v)) ** 2) / n
    certain = max(0.0, distance / spread - 1 / (n - 1) - 1 / n)
    return 0.4 * certain / (certain + 0.1 + 2 / n)


def literal(net, images):
    def norm(layer, h):
        mean, var = layer.running_mean, layer.running_var
        share = literal_share(h, mean, var)
        mean = (1 - share) * mean + share * h.mean((0, 2, 3))
        var = (1 - share) * var + share * h.var((0, 2, 3))
        h = (h - mean.view(1, -1, 1, 1)) / (var.view(1, -1, 1, 1) + 1e-5).sqrt()
        return h * layer.weight.view(1, -1, 1, 1) + layer.bias.view(1, -1, 1, 1)

    h = norm(net.bn1, net.c1(images)).clamp(min=0)
    h = norm(net.bn2, net.c2(h)).clamp(min=0)
    h = (norm(net.bn3, net.c3(h)) + h).clamp(min=0)
    return net.fc(h.mean((2, 3))).softmax(1)


def view(images, mirror, margin):
    """Cropped or reflected pixel by pixel, then resized."""
    images = images.flip(-1) if mirror else images
    rows, columns = (round(margin * side) for side in images.shape[-2:])

    def sources(side, cut):
        places = range(cut, side - cut)
        return [2 * (side - 1) - at if at >= side else abs(at) for at in places]

    framed = images[..., sources(images.shape[-2], rows), :][..., sources(images.shape[-1], columns)]
    return F.interpolate(framed, size=images.shape[-2:], mode="bilinear")


@torch.no_grad()
@pytest.mark.parametrize("effort", list(VIEWS))
def test_it_is_the_mean_over_views_of_shared_statistics(effort):
    net = network()
    views = [literal(net, view(IMAGES, *about)) for about in VIEWS[effort]]
    p = torch.stack(views)
    by = {about: (one.argmax(1) != p[0].argmax(1)).float().mean() for about, one in zip(VIEWS[effort], p, strict=True)}
    assert effort == "one" or by[True, 0.0] <= 1.25 * by[False, 0.06] + 0.05  # all views count
    result = da.adapt(net, "auto", effort=effort).adapt(IMAGES)
    torch.testing.assert_close(result.logits.softmax(1), p.mean(0), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(result.before.softmax(1), p[0], rtol=1e-9, atol=1e-9)
    assert any(alpha < 1 for alpha in result.alpha.values())


class Handed(nn.Module):
    """Tells images by whether their left half is brighter, so that mirroring changes every answer."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(1, affine=False)

    def forward(self, x):
        halves = self.norm(x).unflatten(-1, (2, -1)).mean((1, 2, 4))
        return 3 * halves


def test_mirrored_views_are_left_out_where_the_network_tells_left_from_right():
    images = torch.cat([torch.full((16, 1, 16, 8), 1.0), torch.zeros(16, 1, 16, 8)], -1)
    images[::2] = images[::2].flip(-1)
    for effort in ("some", "most"):
        adaptor = da.adapt(Handed().eval(), "auto", effort=effort)
        assert adaptor(images).argmax(1).tolist() == [1, 0] * 8
    kept = da.adapt(Handed().eval(), "auto").adapt(images)
    zoom = da.adapt(Handed().eval(), "auto", effort="one")(zoomed(images, 0.06)).softmax(1)
    torch.testing.assert_close(kept.logits.softmax(1), (kept.before.softmax(1) + zoom) / 2)


def test_one_image_is_given_source_statistics():
    net = network()
    image = IMAGES[:1]
    result = da.adapt(net, "auto").adapt(image)
    assert set(result.alpha.values()) == {1.0}
    views = [net(view(image, *about)).softmax(1) for about in VIEWS["some"]]
    zoom, mirror = (views[at].argmax() != views[0].argmax() for at in (1, 2))
    views = views if mirror <= zoom else views[:2]
    torch.testing.assert_close(result.logits.softmax(1), torch.stack(views).mean(0), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(da.adapt(net, "auto", effort="one")(image), net(image), rtol=0, atol=0)


def test_without_a_shift_almost_all_of_the_statistics_are_the_source_models():
    net = nn.Sequential(nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)).eval()
    images = torch.randn((64, 4, 6, 6), generator=torch.Generator().manual_seed(0))
    images = images + torch.randn((64, 4, 1, 1), generator=torch.Generator().manual_seed(1))
    net[0].running_var.fill_(2.0)
    assert da.adapt(net, "auto").adapt(images).alpha["0"] > 0.95
    assert da.adapt(net, "auto").adapt(images + 2).alpha["0"] < 0.7


def test_labels_that_do_not_exclude_each_other_are_averaged_one_by_one():
    net = network()
    logits = da.adapt(net, "auto", multilabel=True)(IMAGES)
    adaptor = da.adapt(net, "auto", effort="one", multilabel=True)
    views = torch.stack([adaptor(view(IMAGES, *about)) for about in VIEWS["some"]])
    changed = ((views > 0) != (views[0] > 0)).double().mean((1, 2))
    views = views if changed[2] <= 1.25 * changed[1] + 0.05 else views[:2]
    torch.testing.assert_close(logits.sigmoid(), views.sigmoid().mean(0), rtol=1e-9, atol=1e-9)


def test_dense_networks_and_other_inputs_are_predicted_in_one_pass():
    dense = nn.Sequential(nn.Conv2d(3, 5, 1), nn.BatchNorm2d(5)).eval()
    images = batch(6, 3, 8, 8)
    torch.testing.assert_close(da.adapt(dense, "auto")(images), da.adapt(dense, "auto", effort="one")(images))
    flat = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)).eval()
    vectors = batch(6, 6)
    torch.testing.assert_close(da.adapt(flat, "auto")(vectors), da.adapt(flat, "auto", effort="one")(vectors))
