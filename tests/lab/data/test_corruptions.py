"""Each corruption against its formula, written again with the libraries or the loops of the published programs."""

import colorsys
import math
import pickle
import random
import warnings
from io import BytesIO
from statistics import NormalDist

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage
from sklearn.datasets import load_sample_image

from domainadaptor.errors import BadOption
from domainadaptor.lab.data.corruptions import CORRUPTIONS, corrupt

BOTH = ("cifar", "imagenet")
SEVERITIES = range(1, 6)
DETERMINISTIC = {"defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression"}


@pytest.fixture(scope="module")
def photo():
    return Image.fromarray(load_sample_image("china.jpg")).crop((150, 80, 374, 304))


@pytest.fixture(scope="module")
def thumbnail():
    whole = Image.fromarray(load_sample_image("china.jpg"))
    return whole.crop((100, 0, 500, 400)).resize((32, 32), Image.Resampling.BOX)


@pytest.fixture(scope="module")
def pictures(photo, thumbnail):
    return {"imagenet": photo, "cifar": thumbnail}


def speckled(width, height, seed=0):
    """A small picture without any two pixels alike, so that a wrong neighbor shows."""
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def plain(value, side=100):
    return Image.new("RGB", (side, side), (value,) * 3)


def values(picture):
    return np.asarray(picture, dtype=np.float64)


def apart(a, b):
    return float(np.abs(values(a) - values(b)).mean())


def is_cut_off(got, expected):
    """The picture holds the numbers from 0 to 1 in eight bits; a byte more or less is the rounding of floats."""
    exact = np.clip(expected, 0, 1) * 255
    return bool((values(got) <= exact + 1e-3).all() and (values(got) > exact - 1 - 1e-3).all())


# What holds for all of them.


def test_the_names_are_the_published_ones_in_their_order():
    assert (
        " ".join(CORRUPTIONS).split()
        == (
            "gaussian_noise shot_noise impulse_noise defocus_blur glass_blur motion_blur zoom_blur snow frost fog "
            "brightness contrast elastic_transform pixelate jpeg_compression"
        ).split()
    )


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_seed_alone_decides(name, thumbnail):
    original = thumbnail.copy()
    first = corrupt(thumbnail, name, 3, seed=1)
    assert apart(corrupt(thumbnail, name, 3, seed=1), first) == 0
    assert (apart(corrupt(thumbnail, name, 3, seed=2), first) == 0) == (name in DETERMINISTIC)
    assert apart(thumbnail, original) == 0


def test_no_other_random_state_is_changed(thumbnail):
    def states():
        return pickle.dumps((random.getstate(), np.random.get_state(), torch.get_rng_state().tolist()))

    before = states()
    for name in CORRUPTIONS:
        corrupt(thumbnail, name, 3)
    assert states() == before


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("constants", BOTH)
def test_pictures_of_any_size(name, constants):
    for size in ((1, 1), (2, 1), (1, 7), (3, 2), (8, 8), (33, 17), (300, 200)):
        severities = SEVERITIES if size[0] < 100 else (5,)
        for severity in severities:
            got = corrupt(speckled(*size), name, severity, constants=constants)
            assert got.size == size
            assert got.mode == "RGB"


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_black_white_and_gray_pictures(name):
    ramp = Image.fromarray(np.tile(np.arange(0, 256, 8, dtype=np.uint8), (32, 1))).convert("RGB")
    for picture in (plain(0, 32), plain(255, 32), ramp):
        assert corrupt(picture, name, 5).size == (32, 32)
    if name not in ("gaussian_noise", "shot_noise", "impulse_noise", "frost"):
        assert np.ptp(values(corrupt(ramp, name, 3)), axis=2).max() == 0  # gray stays gray


# Where the published constants themselves do not make the next level worse. Glass blur: fewer rounds, or a wider blur
# that hides the shuffling. Frost: the picture gets darker under the same ice. Fog: the same thickness, another grain.
# Snow: fewer but larger flakes. Motion blur: more pixels, of almost no weight. Elastic: small ripples for large bends.
NO_WORSE_AFTER = {
    "cifar": {"glass_blur": {1, 2, 4}, "motion_blur": {3}, "frost": {3, 4}, "elastic_transform": {1, 2, 3, 4}},
    "imagenet": {"glass_blur": {1, 3}, "snow": {2}, "frost": {3}, "fog": {3}, "elastic_transform": {2}},
}


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("constants", BOTH)
def test_severity_grows(name, constants, pictures):
    picture = pictures[constants]
    seeds = range(1 if name in DETERMINISTIC else 2 if constants == "imagenet" else 20)
    distance = [
        np.mean([apart(corrupt(picture, name, severity, constants=constants, seed=seed), picture) for seed in seeds])
        for severity in SEVERITIES
    ]
    assert min(distance) > 1
    for severity in range(1, 5):
        if severity not in NO_WORSE_AFTER[constants].get(name, ()):
            assert distance[severity] > distance[severity - 1], (severity, distance)


def test_wrong_options_are_answered(thumbnail):
    with pytest.raises(BadOption, match="did you mean 'fog'"):
        corrupt(thumbnail, "fogg", 1)
    with pytest.raises(BadOption, match="did you mean 'jpeg_compression'"):
        corrupt(thumbnail, "jpeg", 1)
    with pytest.raises(BadOption, match="did you mean 'cifar'"):
        corrupt(thumbnail, "fog", 1, constants="cifar10")
    for severity in (0, 6, -1, 1.0, True, "3", None):
        with pytest.raises(BadOption, match="severity"):
            corrupt(thumbnail, "fog", severity)
    for seed in (-1, 0.5, None):
        with pytest.raises(BadOption, match="seed"):
            corrupt(thumbnail, "fog", 1, seed=seed)
    for picture in (thumbnail.convert("L"), thumbnail.convert("RGBA"), Image.new("RGB", (0, 3))):
        with pytest.raises(BadOption, match="expected RGB"):
            corrupt(picture, "fog", 1)


# Noise, against its distribution.

GAUSSIAN = {"cifar": (0.04, 0.06, 0.08, 0.09, 0.10), "imagenet": (0.08, 0.12, 0.18, 0.26, 0.38)}
SHOT = {"cifar": (500, 250, 100, 75, 50), "imagenet": (60, 25, 12, 5, 3)}
IMPULSE = {"cifar": (0.01, 0.02, 0.03, 0.05, 0.07), "imagenet": (0.03, 0.06, 0.09, 0.17, 0.27)}


@pytest.mark.parametrize("constants", BOTH)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_gaussian_noise_has_the_published_deviation(constants, severity):
    noisy = values(corrupt(plain(128), "gaussian_noise", severity, constants=constants))
    normal = NormalDist(128 / 255, GAUSSIAN[constants][severity - 1])
    expected = np.floor(np.clip([normal.inv_cdf((k + 0.5) / 5000) for k in range(5000)], 0, 1) * 255)
    assert noisy.mean() == pytest.approx(expected.mean(), abs=1.5)
    assert noisy.std() == pytest.approx(expected.std(), rel=0.03)


@pytest.mark.parametrize("constants", BOTH)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_shot_noise_is_poisson(constants, severity):
    noisy = values(corrupt(plain(80), "shot_noise", severity, constants=constants)) / 255
    photons = SHOT[constants][severity - 1]
    light = 80 / 255 * photons
    chance = [math.exp(k * math.log(light) - light - math.lgamma(k + 1)) for k in range(1000)]
    count = np.minimum(np.arange(1000) / photons, 1)
    mean = np.average(count, weights=chance)
    assert noisy.mean() == pytest.approx(mean, abs=0.006)
    assert noisy.var() == pytest.approx(np.average((count - mean) ** 2, weights=chance), rel=0.05)


@pytest.mark.parametrize("constants", BOTH)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_impulse_noise_breaks_the_published_share_of_values(constants, severity):
    noisy = values(corrupt(plain(80), "impulse_noise", severity, constants=constants))
    share = IMPULSE[constants][severity - 1]
    assert (noisy == 0).mean() == pytest.approx(share / 2, rel=0.15)
    assert (noisy == 255).mean() == pytest.approx(share / 2, rel=0.15)
    assert (noisy == 80).mean() == pytest.approx(1 - share, abs=0.01)
    assert not (noisy == noisy[..., :1]).all()  # each color on its own


# Blur, against the libraries that the published programs call.


def magick_motion_blur(picture, radius, sigma, angle):
    """ImageMagick's loop: pixel by pixel along the line, the nearest one beyond the edge."""
    height, width = picture.shape[:2]
    weights = [math.exp(-i * i / (2 * sigma * sigma)) for i in range(2 * radius + 1)]
    blurred = np.zeros_like(picture)
    for y in range(height):
        for x in range(width):
            for i, weight in enumerate(weights):
                right = math.ceil(i * math.cos(math.radians(angle)) - 0.5)
                down = math.ceil(i * math.sin(math.radians(angle)) - 0.5)
                at = min(max(y + down, 0), height - 1), min(max(x + right, 0), width - 1)
                blurred[y, x] += weight / sum(weights) * picture[at]
    return np.round(blurred * 255) / 255


def published_zoom(picture, factor):
    height, width = picture.shape[:2]
    rows, columns = math.ceil(height / factor), math.ceil(width / factor)
    top, left = (height - rows) // 2, (width - columns) // 2
    middle = picture[top : top + rows, left : left + columns]
    larger = np.stack([ndimage.zoom(middle[..., c], factor, order=1) for c in range(picture.shape[2])], -1)
    top, left = (larger.shape[0] - height) // 2, (larger.shape[1] - width) // 2
    return larger[top : top + height, left : left + width]


DISKS = {
    "cifar": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    "imagenet": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
}


@pytest.mark.parametrize("constants", BOTH)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_defocus_is_convolution_with_a_soft_disk(constants, severity):
    radius, softness = DISKS[constants][severity - 1]
    extent, reach = (8, 1) if radius <= 8 else (10, 2)
    line = range(-extent, extent + 1)
    disk = np.array([[float(x * x + y * y <= radius * radius) for x in line] for y in line])
    soft = [math.exp(-k * k / (2 * softness**2)) for k in range(-reach, reach + 1)]
    kernel = ndimage.convolve(disk / disk.sum(), np.outer(soft, soft) / sum(soft) ** 2, mode="mirror")
    picture = speckled(33, 17)
    expected = ndimage.convolve(values(picture) / 255, kernel[..., None], mode="mirror")
    assert is_cut_off(corrupt(picture, "defocus_blur", severity, constants=constants), expected)


GLASS = {
    "cifar": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    "imagenet": ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
}


@pytest.mark.parametrize("constants", BOTH)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_glass_blur_is_the_published_loop(constants, severity):
    sigma, reach, rounds = GLASS[constants][severity - 1]
    picture, rng = speckled(23, 31), np.random.default_rng(7)
    blurred = ndimage.gaussian_filter(values(picture) / 255, (sigma, sigma, 0), mode="nearest")
    x = np.uint8(blurred * 255 + 1e-6)
    height, width = x.shape[:2]
    for _ in range(rounds):
        rows, columns = range(height - reach, reach, -1), range(width - reach, reach, -1)
        down, right = rng.integers(-reach, reach, (2, len(rows), len(columns)))
        for h in rows:
            for w in columns:
                other = h + down[h - reach - 1, w - reach - 1], w + right[h - reach - 1, w - reach - 1]
                x[h, w], x[other] = x[other], x[h, w]  # views: in truth a copy, as in the published program
    expected = ndimage.gaussian_filter(x / 255, (sigma, sigma, 0), mode="nearest")
    assert is_cut_off(corrupt(picture, "glass_blur", severity, constants=constants, seed=7), expected)


LINES = {
    "cifar": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    "imagenet": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
}


@pytest.mark.parametrize("constants", BOTH)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_motion_blur_is_imagemagicks(constants, severity):
    picture = speckled(11, 9)
    for seed in (1, 2):
        angle = np.random.default_rng(seed).uniform(-45, 45)
        expected = magick_motion_blur(values(picture) / 255, *LINES[constants][severity - 1], angle) * 255
        got = values(corrupt(picture, "motion_blur", severity, constants=constants, seed=seed))
        assert np.abs(got - expected).max() <= 1
        assert (got != np.rint(expected)).mean() < 0.01


ZOOMS = {
    "cifar": ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
    "imagenet": ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
}


@pytest.mark.parametrize("constants", BOTH)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_zoom_blur_is_a_mean_of_enlargements(constants, severity, pictures):
    for picture in (pictures[constants].crop((0, 0, 64, 64)), speckled(33, 17)):
        x = values(picture) / 255
        factors = np.arange(1, *ZOOMS[constants][severity - 1])
        expected = (x + sum(published_zoom(x, float(f)) for f in factors)) / (len(factors) + 1)
        assert is_cut_off(corrupt(picture, "zoom_blur", severity, constants=constants), expected)


# Weather.

SNOW = {
    "cifar": (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    "imagenet": (
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ),
}


@pytest.mark.parametrize("constants", BOTH)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_snow_is_smeared_flakes_on_a_whitened_picture(constants, severity):
    mean, deviation, size, threshold, radius, sigma, share = SNOW[constants][severity - 1]
    picture, rng = speckled(16, 12), np.random.default_rng(3)
    x = values(picture) / 255
    flakes = published_zoom(rng.normal(mean, deviation, (12, 16))[..., None], size)
    flakes[flakes < threshold] = 0
    flakes = np.uint8(flakes.clip(0, 1) * 255) / 255
    flakes = magick_motion_blur(flakes, radius, sigma, rng.uniform(-135, -45))
    gray = values(picture.convert("F"))[..., None] / 255  # the same weights of red, green and blue as OpenCV's
    whitened = share * x + (1 - share) * np.maximum(x, gray * 1.5 + 0.5)
    expected = np.clip(whitened + flakes + np.rot90(flakes, 2), 0, 1) * 255
    got = values(corrupt(picture, "snow", severity, constants=constants, seed=3))
    assert np.abs(got - np.floor(expected + 1e-6)).max() <= 2
    assert (got != np.floor(expected + 1e-6)).mean() < 0.02


FROST = {
    "cifar": ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
    "imagenet": ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
}


@pytest.mark.parametrize("constants", BOTH)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_frost_adds_a_texture_like_the_photographs(constants, severity):
    share, ice = FROST[constants][severity - 1]
    black = Image.new("RGB", (56, 40))
    textures = [
        values(corrupt(black, "frost", severity, constants=constants, seed=seed)) / 255 / ice for seed in range(40)
    ]
    # Measured on the five photographs that the published programs choose from: means of 0.44 to 0.80, 0.63 in all.
    assert all(0.4 < texture.mean() < 0.83 for texture in textures)
    assert np.mean(textures) == pytest.approx(0.63, abs=0.05)
    assert all(0.05 < texture.mean(2).std() < 0.15 for texture in textures)
    assert all(np.all(np.diff(texture.mean((0, 1))) > 0) for texture in textures)  # red < green < blue
    darker = values(corrupt(black, "frost", severity, constants=constants, seed=4))
    lighter = values(corrupt(plain(30).resize(black.size), "frost", severity, constants=constants, seed=4))
    assert np.abs((lighter - darker)[lighter < 255] - 30 * share).max() <= 1


FOG = {
    "cifar": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    "imagenet": ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
}


@pytest.mark.parametrize("constants", BOTH)
@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("size", [(16, 16), (20, 11)])
def test_fog_is_diamond_square_point_by_point(constants, severity, size):
    thickness, decay = FOG[constants][severity - 1]
    picture, rng = speckled(*size), np.random.default_rng(5)
    side = step = 16 if size == (16, 16) else 32
    cloud, wibble = np.zeros((side, side)), 100.0

    def at(y, x):
        return cloud[y % side, x % side]

    while step >= 2:
        half, n = step // 2, side // step
        for dy, dx in ((half, half), (0, half), (half, 0)):
            draws = rng.uniform(-1, 1, (n, n))
            for i in range(n):
                for j in range(n):
                    y, x = i * step + dy, j * step + dx
                    square = [(-half, -half), (-half, half), (half, -half), (half, half)]
                    diamond = [(-half, 0), (half, 0), (0, -half), (0, half)]
                    around = square if dy and dx else diamond
                    # The published program scales its draws twice by the same number.
                    cloud[y, x] = sum(at(y + a, x + b) for a, b in around) / 4 + wibble * wibble * draws[i, j]
        step, wibble = half, wibble / decay
    cloud = (cloud - cloud.min()) / (cloud.max() - cloud.min())
    x = values(picture) / 255
    expected = (x + thickness * cloud[: size[1], : size[0], None]) * x.max() / (x.max() + thickness)
    assert is_cut_off(corrupt(picture, "fog", severity, constants=constants, seed=5), expected)


BRIGHTNESS = {"cifar": (0.05, 0.1, 0.15, 0.2, 0.3), "imagenet": (0.1, 0.2, 0.3, 0.4, 0.5)}


@pytest.mark.parametrize("constants", BOTH)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_brightness_adds_to_the_value_of_hsv(constants, severity):
    picture = speckled(9, 7)
    picture.paste((0, 0, 0), (0, 0, 2, 2))
    more = BRIGHTNESS[constants][severity - 1]
    expected = np.empty((7, 9, 3))
    for y in range(7):
        for x in range(9):
            hue, saturation, value = colorsys.rgb_to_hsv(*(values(picture)[y, x] / 255))
            expected[y, x] = colorsys.hsv_to_rgb(hue, saturation, min(value + more, 1))
    assert is_cut_off(corrupt(picture, "brightness", severity, constants=constants), expected)


# Digital.

CONTRAST = {"cifar": (0.75, 0.5, 0.4, 0.3, 0.15), "imagenet": (0.4, 0.3, 0.2, 0.1, 0.05)}
ELASTIC = {
    "cifar": ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
    "imagenet": ((2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02)),
}
PIXELATE = {"cifar": (0.95, 0.9, 0.85, 0.75, 0.65), "imagenet": (0.6, 0.5, 0.4, 0.3, 0.25)}
JPEG = {"cifar": (80, 65, 58, 50, 40), "imagenet": (25, 18, 15, 10, 7)}


@pytest.mark.parametrize("constants", BOTH)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_contrast_shrinks_towards_the_mean_of_each_color(constants, severity, pictures):
    x = values(pictures[constants]) / 255
    expected = np.empty_like(x)
    for color in range(3):
        mean = x[..., color].mean()
        expected[..., color] = mean + CONTRAST[constants][severity - 1] * (x[..., color] - mean)
    assert is_cut_off(corrupt(pictures[constants], "contrast", severity, constants=constants), expected)


@pytest.mark.parametrize("constants", BOTH)
@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("size", [(32, 32), (224, 224), (40, 23)])
def test_elastic_transform_is_an_affine_map_and_smooth_noise(constants, severity, size, photo):
    picture, rng = photo.resize(size), np.random.default_rng(9)
    width, height = size
    side = min(size) * (244 / 224 if constants == "imagenet" else 1)
    strength, smoothness, shift = (side * c for c in ELASTIC[constants][severity - 1])
    x = values(picture) / 255

    # Forward, in x and y, as OpenCV takes it; scipy wants the way back, in y and x.
    reach, center = min(size) // 3, np.array([width // 2, height // 2])
    corners = center + reach * np.array([[1, 1], [1, -1], [-1, -1]])
    moved = corners + rng.uniform(-shift, shift, (3, 2))[:, ::-1]
    forward = np.linalg.solve(np.c_[corners, np.ones(3)], moved).T
    back = np.linalg.inv(np.r_[forward, [[0, 0, 1]]])[[1, 0]][:, [1, 0, 2]]
    bent = np.stack(
        [ndimage.affine_transform(x[..., c], back[:, :2], back[:, 2], order=1, mode="mirror") for c in range(3)], -1
    )
    if strength:
        right, down = (
            ndimage.gaussian_filter(rng.uniform(-1, 1, (height, width)), smoothness, mode="reflect", truncate=3)
            for _ in range(2)
        )
        grid = np.mgrid[:height, :width] + strength * np.stack([down, right])
        bent = np.stack([ndimage.map_coordinates(bent[..., c], grid, order=1, mode="reflect") for c in range(3)], -1)
    assert is_cut_off(corrupt(picture, "elastic_transform", severity, constants=constants, seed=9), bent)


@pytest.mark.parametrize("constants", BOTH)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_pixelate_and_jpeg_are_pillows(constants, severity, photo):
    for picture in (photo, speckled(33, 17)):
        share = PIXELATE[constants][severity - 1]
        small = int(picture.width * share), int(picture.height * share)
        expected = picture.resize(small, Image.Resampling.BOX).resize(picture.size, Image.Resampling.BOX)
        assert apart(corrupt(picture, "pixelate", severity, constants=constants), expected) == 0
        file = BytesIO()
        picture.save(file, "JPEG", quality=JPEG[constants][severity - 1])
        assert apart(corrupt(picture, "jpeg_compression", severity, constants=constants), Image.open(file)) == 0


@pytest.mark.parametrize("name", [name for name in CORRUPTIONS if name != "elastic_transform"])
def test_agrees_with_imgcorr(name, photo):
    """Another program with the constants of ImageNet-C, except those of elastic transform."""
    imgcorr = pytest.importorskip("imgcorr", reason="pip install imgcorr 'setuptools<80'")
    seeds = range(1 if name in DETERMINISTIC else 8)
    for severity in SEVERITIES:
        np.random.seed(severity)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = [imgcorr.corrupt(np.asarray(photo), severity, name) for _ in seeds]
        ours = [corrupt(photo, name, severity, seed=seed) for seed in seeds]
        if name in DETERMINISTIC:
            assert apart(ours[0], theirs[0]) < 0.1
        for measure in (np.mean, np.std, lambda picture: apart(picture, photo)):
            a, b = (np.array([measure(values(picture)) for picture in pictures]) for pictures in (ours, theirs))
            chance = math.sqrt((a.var() + b.var()) / len(seeds))
            assert a.mean() == pytest.approx(b.mean(), abs=0.3 + 5 * chance), severity
