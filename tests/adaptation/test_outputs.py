"""What networks return and take besides logits and images: maps, boxes, labels, further inputs."""

import pytest
import torch
from torch import nn

import domainadaptor as da
from domainadaptor.adaptation.logits import rows
from domainadaptor.errors import BadBatch, UnsupportedNetwork
from tests.conftest import GoldenNet, batch, stir

STATISTICS = ("source", "adabn", "adamixbn")
BY_PIXEL = ("tent", "slr", "eta", "delta", "domainadaptor-t", "domainadaptor-skd")


class Dense(GoldenNet):
    """Logits for each pixel of its features."""

    def forward(self, x):
        h = torch.relu(self.bn1(self.c1(x)))
        h = torch.relu(self.bn2(self.c2(h)))
        return {"out": self.fc(h.movedim(1, -1)).movedim(-1, 1), "aux": self.bn3(self.c3(h))}


class Boxes(GoldenNet):
    """A list with a dict for each image, as detectors return."""

    def forward(self, x):
        return [{"boxes": row[None, :4], "labels": torch.ones(1, dtype=torch.long)} for row in super().forward(x)]


class WithPlace(GoldenNet):
    """Takes a second input for each image."""

    def forward(self, x, place):
        return super().forward(x) + place


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(12), nn.Linear(12, 5)

    def forward(self, x):
        return self.fc(self.norm(x).mean((1, 2)))


def built(kind):
    torch.manual_seed(0)
    return stir(kind())


@pytest.mark.parametrize("method", STATISTICS)
@pytest.mark.parametrize("kind", [Dense, Boxes])
def test_statistics_methods_return_what_the_network_returns(kind, method, images):
    network = built(kind)
    adaptor = da.adapt(network, method)
    output = adaptor(images)
    plain = adaptor.adapted_network(images)(images)
    found = [t for part in (output, plain) for t in torch.utils._pytree.tree_leaves(part)]
    half = len(found) // 2
    assert type(output) is type(network(images))
    for one, other in zip(found[:half], found[half:], strict=True):
        torch.testing.assert_close(one, other)
    with pytest.raises(BadBatch, match="empty"):
        adaptor(images[:0])


@pytest.mark.parametrize("method", BY_PIXEL)
def test_methods_with_a_loss_of_logits_alone_take_dense_ones(method, images):
    adaptor = da.adapt(built(Dense), method, **({"margin": 1.0} if method == "eta" else {}))
    result = adaptor.adapt(images)
    assert result.logits.shape == (8, 7, 6, 6)
    assert result.loss is not None


def test_the_loss_of_dense_logits_is_the_mean_over_pixels(images):
    result = da.adapt(built(Dense), "tent").adapt(images)
    pixels = torch.stack([result.before[n, :, i, j] for n in range(8) for i in range(6) for j in range(6)])
    p = pixels.double().softmax(1)
    assert result.loss == pytest.approx(-(p * p.log()).sum(1).mean().item(), rel=1e-5)


@pytest.mark.parametrize("kind", ["lraspp_mobilenet_v3_large", "deeplabv3_mobilenet_v3_large"])
def test_segmentation_networks(kind):
    models = pytest.importorskip("torchvision.models")
    torch.manual_seed(0)
    network = models.get_model(kind, weights=None, weights_backbone=None, num_classes=5).eval()
    images = batch(2, 3, 48, 48)
    assert da.adapt(network, "adamixbn")(images)["out"].shape == (2, 5, 48, 48)
    assert da.adapt(network, "tent")(images).shape == (2, 5, 48, 48)


def test_feature_maps_are_no_logits(images):
    network = built(GoldenNet)
    network.forward = lambda x: [network.c1(x), network.c2(network.bn1(network.c1(x)))]
    assert len(da.adapt(network, "adabn")(images)) == 2
    with pytest.raises(UnsupportedNetwork, match="a list without logits"):
        da.adapt(network, "tent")(images)


def test_many_pixels_are_thinned_out():
    logits = torch.randn(2, 3, 512, 512)
    chosen = rows(logits, False)
    assert torch.equal(chosen, logits[:, :, ::3, ::3].permute(0, 2, 3, 1).reshape(-1, 3))
    assert len(chosen) <= 2**16


def test_labels_have_a_binary_loss(images):
    network = built(GoldenNet)
    result = da.adapt(network, "tent", multilabel=True, lr=0.01).adapt(images)
    p = result.before.double().sigmoid()
    expected = -(p * p.log() + (1 - p) * (1 - p).log()).mean()
    assert result.loss == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("method", ["cotta", "lame", "domainadaptor-aug", "memo", "sar"])
def test_what_needs_one_class_per_image_says_which_methods_do_not(method, images):
    options = {"views": 2} if method in ("cotta", "memo") else {}
    with pytest.raises(UnsupportedNetwork, match=r"one class per image.*Methods that fit: adabn, .*tent"):
        da.adapt(built(GoldenNet), method, multilabel=True, **options)(images)


def test_what_has_no_logits_is_refused_with_the_methods_that_need_none(images):
    with pytest.raises(
        UnsupportedNetwork, match=r"a list without logits.*Methods that fit: adabn, adamixbn, auto, source\."
    ):
        da.adapt(built(Boxes), "tent")(images)


def test_a_network_without_batch_norm_is_told_the_methods_that_run_on_it():
    torch.manual_seed(0)
    with pytest.raises(UnsupportedNetwork) as caught:
        da.adapt(Transformer(), "adabn")
    named = str(caught.value).partition("Methods that fit: ")[2].rstrip(".").split(", ")
    assert {"tent", "sar", "t3a", "lame", "source"} <= set(named)
    for name in da.list_methods():
        try:
            da.adapt(Transformer(), name)
        except da.AdaptationError:
            assert name not in named
        else:
            assert name in named


@pytest.mark.parametrize("method", ["source", "adamixbn", "tent", "domainadaptor-t"])
def test_further_inputs_reach_the_network(method, images):
    place = torch.randn(8, 7)
    network = built(WithPlace)
    adaptor = da.adapt(network, method)
    torch.testing.assert_close(adaptor.source_logits(images, place), network(images, place))
    bound = built(WithPlace)
    bound.forward = lambda x: GoldenNet.forward(bound, x) + place
    expected = da.adapt(bound, method)(images)
    torch.testing.assert_close(da.adapt(network, method).adapt(images, place).logits, expected)
    torch.testing.assert_close(adaptor.peek(images, place).logits, expected)
    torch.testing.assert_close(adaptor(images, place), expected)


def test_further_inputs_are_refused_where_other_images_are_passed(images):
    with pytest.raises(BadBatch, match="1 more"):
        da.adapt(built(WithPlace), "domainadaptor-aug")(images, torch.randn(8, 7))


@pytest.mark.parametrize("method", ["adabn", "domainadaptor-t", "cotta", "lame", "source"])
def test_one_image_is_not_a_batch(method):
    with pytest.raises(BadBatch, match=r"One image\? Pass image\[None\]"):
        da.adapt(built(GoldenNet), method)(batch(3, 12, 12))


def test_a_small_batch_is_answered_by_the_source_model(net, images):
    adaptor = da.adapt(net, "tent", min_batch=8)
    first = adaptor.adapt(images[:7])
    assert first.fell_back
    assert "smaller than min_batch=8" in first.note
    assert torch.equal(first.logits, net(images[:7]))
    assert torch.equal(adaptor(images), da.adapt(net, "tent")(images))
