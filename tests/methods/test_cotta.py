"""CoTTA against its loop written out, and its views against torchvision's operations."""

import numpy as np
import pytest
import torch

import domainadaptor as da
from domainadaptor.augmentation.cotta import _RANGES, changed, cotta_view, draw
from domainadaptor.augmentation.pixels import Pixels
from domainadaptor.errors import BadBatch, BadOption
from tests.conftest import batch
from tests.methods.literal import Adam, by_batch, gradients, leaves, logits, network, probabilities, weights_of

BATCHES = [batch(5, 3, 12, 12, seed=seed, dtype=torch.float64) for seed in range(4)]
MEAN, STD = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]], dtype=torch.float64)


def by_torchvision(pixels, how):
    tv = pytest.importorskip("torchvision.transforms.functional")
    """The authors' order: colors, doubled sides, turn, blur, center, flip."""
    x = pixels.clamp(0, 1)
    for at in how.order:
        x = [
            lambda x: tv.adjust_brightness(x, how.brightness),
            lambda x: tv.adjust_contrast(x, how.contrast),
            lambda x: tv.adjust_saturation(x, how.saturation),
            lambda x: tv.adjust_hue(x, how.hue),
            lambda x: tv.adjust_gamma(x, how.gamma),
        ][at](x)
    high, wide = x.shape[-2:]
    x = tv.pad(x, [wide // 2, high // 2], padding_mode="edge")
    move = [how.right * x.shape[-1], how.down * x.shape[-2]]
    x = tv.affine(x, how.angle, move, how.scale, [0.0, 0.0], tv.InterpolationMode.BILINEAR)
    x = tv.center_crop(tv.gaussian_blur(x, [5, 5], [how.blur, how.blur]), [high, wide])
    return tv.hflip(x) if how.flip else x


@pytest.mark.parametrize("size", [(12, 12), (20, 24)])
def test_views_are_torchvisions(size):
    generator = torch.Generator().manual_seed(3)
    pixels = 1.4 * torch.rand(3, 3, *size, generator=generator, dtype=torch.float64) - 0.2
    pixels[1, :, 2:5] = 0.3  # gray, which has no hue
    flips = set()
    for _ in range(20):
        how = draw(generator)
        flips.add(how.flip)
        torch.testing.assert_close(changed(pixels, how), by_torchvision(pixels, how), atol=1e-6, rtol=1e-6)
        assert all(low <= getattr(how, name) <= high for name, (low, high) in _RANGES.items())
    assert flips == {True, False}


def test_noise_is_small_and_pixels_stay_pixels():
    pixels = torch.full((40, 3, 12, 12), 0.5)
    one, other = (torch.Generator().manual_seed(1) for _ in range(2))
    noise = cotta_view(pixels, one) - changed(pixels, draw(other))
    assert 0.0045 < float(noise.std()) < 0.0055
    wild = cotta_view(1e30 * (pixels - 0.4), one)
    assert float(wild.min()) >= 0
    assert float(wild.max()) <= 1


def test_pixels_go_back_and_forth():
    x = batch(2, 3, 4, 4)
    pixels = Pixels((0.485, 0.456, 0.406), "0.229,0.224,0.225")
    torch.testing.assert_close(pixels.of(x), x * STD.float().view(3, 1, 1) + MEAN.float().view(3, 1, 1))
    torch.testing.assert_close(pixels.back(pixels.of(x), x), x)
    assert pixels.back(pixels.of(x.bfloat16()), x.bfloat16()).dtype == torch.bfloat16
    torch.testing.assert_close(Pixels(0.5, 0.25).of(x[:, :2]), x[:, :2] * 0.25 + 0.5)
    torch.testing.assert_close(Pixels(np.float32(0.5), np.full(2, 0.25)).of(x[:, :2]), x[:, :2] * 0.25 + 0.5)
    with pytest.raises(BadBatch, match="2 channels, but mean or std has 3 numbers"):
        pixels.of(x[:, :2])


def literal(batches, *, views, ap, rst, ema, symmetric, lr):
    net = network()
    source = weights_of(net)
    student, teacher = dict(source), dict(source)
    adam, generator, answers, seen = Adam(lr), torch.Generator().manual_seed(5), [], []
    for x in batches:
        target = logits(teacher, x, by_batch)
        confidence = probabilities(logits(source, x, by_batch)).max(1).values.mean()
        seen.append(float(confidence))
        if confidence < ap:
            total = 0
            pixels = x * STD.view(3, 1, 1) + MEAN.view(3, 1, 1)
            for _ in range(views):
                view = changed(pixels, draw(generator)) + 0.005 * torch.randn(x.shape, generator=generator).double()
                total = total + logits(teacher, (view.clamp(0, 1) - MEAN.view(3, 1, 1)) / STD.view(3, 1, 1), by_batch)
            target = total / views
        p = probabilities(target)
        student = leaves(student)
        q = probabilities(logits(student, x, by_batch))
        loss = -(p * q.log()).sum(1).mean()
        if symmetric:
            loss = loss / 2 - (q * p.log()).sum(1).mean() / 2
        student = adam.step(student, gradients(loss, student))
        teacher = {name: ema * w + (1 - ema) * student[name] for name, w in teacher.items()}
        norms = [f"{bn}.{part}" for bn in ("bn1", "bn2", "bn3") for part in ("weight", "bias")]
        for name in [*norms, *(name for name in source if name not in norms)]:
            back = torch.rand(source[name].shape, generator=generator) < rst
            student[name] = torch.where(back, source[name], student[name])
        answers.append(target)
    return answers, seen


@pytest.mark.parametrize(
    "options",
    [
        {"views": 3, "ap": 0.92, "rst": 0.1, "ema": 0.9, "symmetric": False, "lr": 0.02},
        {"views": 2, "ap": 0.92, "rst": 0.0, "ema": 0.8, "symmetric": True, "lr": 0.02},
        {"views": 2, "ap": 0.216, "rst": 0.3, "ema": 0.5, "symmetric": False, "lr": 0.05},  # some with views, some not
        {"views": 2, "ap": 1.0, "rst": 1.0, "ema": 0.5, "symmetric": False, "lr": 0.05},
    ],
)
def test_cotta_is_its_literal_loop(options):
    expected, sure = literal(BATCHES, **options)
    symmetric = options.pop("symmetric")
    adaptor = da.adapt(network(), "cotta", seed=5, consistency="symmetric" if symmetric else "ce", **options)
    for x, answer in zip(BATCHES, expected, strict=True):
        torch.testing.assert_close(adaptor(x), answer, atol=1e-9, rtol=1e-9)
    if options["ap"] == 0.216:
        assert min(sure) < 0.216 < max(sure)


def test_the_teacher_is_an_average_and_restored_students_start_anew():
    net = network()
    adaptor = da.adapt(net, "cotta", views=1, rst=1.0, lr=0.01, predict="after")
    adaptor(BATCHES[0])
    change = adaptor.state_dict()["fc.bias"] - net.fc.bias
    torch.testing.assert_close(change.abs(), torch.full_like(change, 0.01 * 0.001), rtol=1e-3, atol=0)
    assert all(torch.equal(p, net.get_parameter(name)) for name, p in adaptor._student.weights.items())


def test_networks_without_batch_norm_and_without_three_colors():
    timm = pytest.importorskip("timm")
    net = timm.create_model("vit_tiny_patch16_224", num_classes=5, img_size=32, depth=1, in_chans=1).eval()
    x = batch(2, 1, 32, 32)
    adaptor = da.adapt(net, "cotta", mean=0.5, std=0.5, views=2, lr=0.01, ema=0.5)
    with torch.no_grad():
        net.head.weight.normal_(0, 0.3)
    adaptor = da.adapt(net, "cotta", mean=0.5, std=0.5, views=2, lr=0.01, ema=0.5)
    assert not torch.allclose(adaptor(x), adaptor(x))
    with pytest.raises(BadBatch, match="3 numbers"):
        da.adapt(net, "cotta")(x)


def test_views_need_images():
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3)).eval()
    with pytest.raises(BadBatch, match=r"shape \(N, C, H, W\)"):
        da.adapt(net, "cotta")(batch(4, 6))
    da.adapt(net, "cotta", ap=0.0)(batch(4, 6))


def test_mistakes_are_explained():
    for options, hint in [
        ({"views": 0}, "at least 1"),
        ({"ap": 2}, "from 0 to 1"),
        ({"rst": -1}, "from 0 to 1"),
        ({"consistency": "symetric"}, "did you mean 'symmetric'"),
        ({"mean": "a,b"}, "expected one number, or one per channel"),
        ({"mean": ()}, "expected one number, or one per channel"),
        ({"std": (1.0, 0.0, 1.0)}, "above 0"),
        ({"optimizer": "adamw"}, "did you mean 'adam'"),
    ]:
        with pytest.raises(BadOption, match=hint):
            da.adapt(network(), "cotta", **options)
