"""Weather: snow, frost, fog, brightness."""

import math

import numpy as np
from numpy.random import Generator
from PIL import Image, ImageDraw

from domainadaptor.lab.data.corruptions.blur import enlarge, smear
from domainadaptor.lab.data.corruptions.pixels import PixelArray, to_bytes

_GRAY = (0.299, 0.587, 0.114)


def snow(
    pixels: PixelArray,
    rng: Generator,
    mean: float,
    deviation: float,
    size: float,
    threshold: float,
    radius: int,
    sigma: float,
    share: float,
) -> PixelArray:
    """Add falling flakes, and the same flakes rotated by 180 degrees, to a whitened image."""
    flakes = enlarge(rng.normal(mean, deviation, pixels.shape[:2]), size)
    flakes[flakes < threshold] = 0
    # In eight bits, because the published program smears a saved image.
    flakes = smear(to_bytes(flakes) / 255, radius, sigma, rng.uniform(-135, -45))
    white = np.maximum(pixels, (1.5 * pixels @ _GRAY + 0.5)[..., None])
    return np.asarray(share * pixels + (1 - share) * white + (flakes + flakes[::-1, ::-1])[..., None])


def frost(pixels: PixelArray, rng: Generator, share: float, ice: float, scale: float) -> PixelArray:
    """Blend in drawn ice crystals, where the published program uses photographs of frost.

    The drawing matches the brightness, color and contrast of those photographs, but scores on it cannot be compared
    with published scores on frost.
    """
    return np.asarray(share * pixels + ice * _crystals(rng, _size(pixels), scale))


def fog(pixels: PixelArray, rng: Generator, thickness: float, decay: float) -> PixelArray:
    """Add clouds, then rescale so that the maximum stays the same."""
    brightest = pixels.max()
    foggy = pixels + thickness * _clouds(rng, _size(pixels), decay)[..., None]
    return np.asarray(foggy * brightest / (brightest + thickness))


def brightness(pixels: PixelArray, rng: Generator, more: float) -> PixelArray:
    """Increase the value channel of HSV."""
    # For fixed hue and saturation, channels are proportional to the value; black has no hue and becomes gray.
    value = pixels.max(axis=2, keepdims=True)
    brighter = (value + more).clip(0, 1)
    return np.asarray(np.where(value > 0, pixels * brighter / np.where(value > 0, value, 1), brighter))


def _clouds(rng: Generator, size: tuple[int, int], decay: float) -> PixelArray:
    """Return plasma noise from 0 to 1, by the diamond-square algorithm on a periodic square."""
    side = step = 2 ** max(1, (max(size) - 1).bit_length())
    plasma = np.zeros((side, side))
    rough = 1.0
    while step > 1:
        half = step // 2
        corners = plasma[::step, ::step]
        below, beside = np.roll(corners, -1, 0), np.roll(corners, -1, 1)
        middles = _between(rng, rough, corners, below, beside, np.roll(below, -1, 1))
        plasma[half::step, half::step] = middles
        plasma[::step, half::step] = _between(rng, rough, corners, beside, middles, np.roll(middles, 1, 0))
        plasma[half::step, ::step] = _between(rng, rough, corners, below, middles, np.roll(middles, 1, 1))
        step = half
        # Squared: the published program draws from a shrinking interval, and scales the draw as well.
        rough /= decay**2
    plasma -= plasma.min()
    return np.asarray(plasma[: size[0], : size[1]] / plasma.max())


def _between(rng: Generator, rough: float, a: PixelArray, b: PixelArray, c: PixelArray, d: PixelArray) -> PixelArray:
    return np.asarray((a + b + c + d) / 4 + rng.uniform(-rough, rough, a.shape))


def _crystals(rng: Generator, size: tuple[int, int], scale: float) -> PixelArray:
    """Return a bluish image of ice: fans of blades in all directions, over clouds."""
    ice = _blades(rng, size, 40 * scale) + 0.4 * _clouds(rng, size, 1.4)
    ice = (ice - ice.mean()) / max(float(ice.std()), 1e-6)
    # Like the photographs: their means are 0.44 to 0.80, their standard deviations 0.06 to 0.14.
    gray = rng.uniform(0.45, 0.8) + rng.uniform(0.06, 0.14) * ice
    return np.asarray((gray[..., None] + [-0.05, 0, 0.05]).clip(0, 1))


def _blades(rng: Generator, size: tuple[int, int], length: float) -> PixelArray:
    height, width = size
    # Roots also lie outside, so that blades reach in over the edge.
    fans = math.ceil(4 * (height / length + 1) * (width / length + 1))
    root = rng.uniform(-length / 2, [width + length / 2, height + length / 2], (fans, 1, 2))
    angle = rng.uniform(0, 2 * math.pi, (fans, 1)) + rng.normal(0, 0.6, (fans, 5))
    reach = length * rng.uniform(0.3, 1, angle.shape)
    shade = rng.uniform(0, 160, (fans, 1)) + rng.uniform(0, 95, angle.shape)

    belly, side = root + _arrow(angle, 0.4 * reach), _arrow(angle + math.pi / 2, 0.07 * reach)
    tip = root + _arrow(angle, reach)
    outlines = np.stack([np.broadcast_to(root, tip.shape), belly - side, tip, belly + side], -2).reshape(-1, 8)
    # In random order, so that fans overlap.
    order = rng.permutation(len(outlines))
    canvas = Image.new("L", (width, height), 80)
    draw = ImageDraw.Draw(canvas)
    for outline, light in zip(outlines[order].tolist(), shade.ravel()[order].astype(int).tolist(), strict=True):
        draw.polygon(outline, fill=light)
        draw.line((*outline[:2], *outline[4:6]), fill=min(255, light + 70))
    return np.asarray(canvas) / 255


def _arrow(angle: PixelArray, length: PixelArray) -> PixelArray:
    return np.stack([np.cos(angle), np.sin(angle)], -1) * length[..., None]


def _size(pixels: PixelArray) -> tuple[int, int]:
    return pixels.shape[0], pixels.shape[1]
