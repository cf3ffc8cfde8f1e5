"""Sensor noise and digital processing: noise, contrast, elastic distortion, pixelation, JPEG."""

from io import BytesIO

import numpy as np
import torch
from numpy.random import Generator
from PIL import Image
from torch.nn.functional import grid_sample

from domainadaptor.lab.data.corruptions.blur import gaussian_weights
from domainadaptor.lab.data.corruptions.pixels import PixelArray, to_array, to_image


def gaussian_noise(pixels: PixelArray, rng: Generator, deviation: float) -> PixelArray:
    """Add Gaussian noise."""
    return pixels + rng.normal(scale=deviation, size=pixels.shape)


def shot_noise(pixels: PixelArray, rng: Generator, photons: float) -> PixelArray:
    """Add Poisson noise; white has `photons` photons on average."""
    return np.asarray(rng.poisson(pixels * photons) / photons)


def impulse_noise(pixels: PixelArray, rng: Generator, share: float) -> PixelArray:
    """Set a share of the values to 0 or 1, per channel."""
    draws = rng.random(pixels.shape)
    return np.where(draws < share / 2, 0.0, np.where(draws < share, 1.0, pixels))


def contrast(pixels: PixelArray, rng: Generator, share: float) -> PixelArray:
    """Shrink the distance to each channel's mean to a share."""
    means = pixels.mean(axis=(0, 1))
    return np.asarray(means + share * (pixels - means))


def elastic_transform(pixels: PixelArray, rng: Generator, strength: float, sigma: float, shift: float) -> PixelArray:
    """Apply a random affine map, then displace pixels by smooth noise; lengths are shares of the side."""
    height, width = pixels.shape[:2]
    side = min(height, width)
    plane = _affine(rng, height, width, shift * side)
    y, x = np.mgrid[:height, :width].astype(np.float64)
    moved = _sample(pixels, *np.tensordot(plane, np.stack([y, x, np.ones_like(x)]), 1), edge_twice=False)
    if strength == 0:
        return moved
    right, down = (strength * side * _smooth(rng.uniform(-1, 1, x.shape), sigma * side) for _ in range(2))
    return _sample(moved, y + down, x + right, edge_twice=True)


def pixelate(pixels: PixelArray, rng: Generator, share: float) -> PixelArray:
    """Shrink to a share of the size, then enlarge again."""
    image = to_image(pixels)
    small = (max(1, int(image.width * share)), max(1, int(image.height * share)))
    box = Image.Resampling.BOX
    return to_array(image.resize(small, box).resize(image.size, box))


def jpeg_compression(pixels: PixelArray, rng: Generator, quality: int) -> PixelArray:
    """Save as JPEG and read back."""
    file = BytesIO()
    to_image(pixels).save(file, "JPEG", quality=quality)
    with Image.open(file) as stored:
        return to_array(stored.convert("RGB"))


def _affine(rng: Generator, height: int, width: int, shift: float) -> PixelArray:
    """Return the map from a pixel (y, x, 1) of the new image to the old one that moves three points at random."""
    reach = max(1, min(height, width) // 3)
    before = np.array([height // 2, width // 2]) + reach * np.array([[1, 1], [-1, 1], [-1, -1]])
    after = before + rng.uniform(-shift, shift, before.shape)
    return np.asarray(np.linalg.solve(np.column_stack([after, np.ones(3)]), before).T)


def _sample(pixels: PixelArray, y: PixelArray, x: PixelArray, *, edge_twice: bool) -> PixelArray:
    """Sample between pixels by linear interpolation; outside, the image is mirrored, with or without its edge."""
    height, width = pixels.shape[:2]
    if edge_twice:
        grid = np.stack([(2 * x + 1) / width, (2 * y + 1) / height], -1) - 1
    else:
        grid = np.stack([2 * x / max(1, width - 1), 2 * y / max(1, height - 1)], -1) - 1
    planes = torch.from_numpy(pixels).permute(2, 0, 1)[None]
    where = torch.from_numpy(grid)[None]
    sampled = grid_sample(planes, where, padding_mode="reflection", align_corners=not edge_twice)
    return np.asarray(sampled[0].permute(1, 2, 0).numpy())


def _smooth(field: PixelArray, sigma: float) -> PixelArray:
    """Apply a Gaussian filter of three standard deviations on each side to a field that is mirrored at its edges."""
    height, width = field.shape
    # The mirrored field is periodic, so a circular filter of any width is exact.
    mirrored = np.pad(field, ((0, height), (0, width)), mode="symmetric")
    radius = int(3 * sigma + 0.5)
    weights = gaussian_weights(sigma, radius)
    rows, columns = (
        np.bincount(np.arange(-radius, radius + 1) % side, weights, side) for side in (2 * height, 2 * width)
    )
    spectrum = np.fft.rfft2(mirrored) * np.fft.fft(rows)[:, None] * np.fft.rfft(columns)
    return np.asarray(np.fft.irfft2(spectrum, mirrored.shape)[:height, :width])
