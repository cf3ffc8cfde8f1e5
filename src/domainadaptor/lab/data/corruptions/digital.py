"""What cameras and programs do to pictures: contrast, stretching, large pixels, JPEG."""

from io import BytesIO

import numpy as np
import torch
from numpy.random import Generator
from PIL import Image
from torch.nn.functional import grid_sample

from domainadaptor.lab.data.corruptions.blur import gaussian_weights
from domainadaptor.lab.data.corruptions.pixels import Pixels, to_picture, to_pixels


def contrast(pixels: Pixels, rng: Generator, share: float) -> Pixels:
    """Leaves a share of the distance to each color's mean."""
    means = pixels.mean(axis=(0, 1))
    return np.asarray(means + share * (pixels - means))


def elastic_transform(pixels: Pixels, rng: Generator, strength: float, smoothness: float, shift: float) -> Pixels:
    """Moves three points and the plane with them, then every pixel by smooth noise; lengths are shares of the side."""
    height, width = pixels.shape[:2]
    side = min(height, width)
    plane = _affine(rng, height, width, shift * side)
    y, x = np.mgrid[:height, :width].astype(np.float64)
    moved = _sample(pixels, *np.tensordot(plane, np.stack([y, x, np.ones_like(x)]), 1), edge_twice=False)
    if strength == 0:
        return moved
    right, down = (strength * side * _smooth(rng.uniform(-1, 1, x.shape), smoothness * side) for _ in range(2))
    return _sample(moved, y + down, x + right, edge_twice=True)


def pixelate(pixels: Pixels, rng: Generator, share: float) -> Pixels:
    """Shrinks to a share of the size, then enlarges again."""
    picture = to_picture(pixels)
    small = (max(1, int(picture.width * share)), max(1, int(picture.height * share)))
    box = Image.Resampling.BOX
    return to_pixels(picture.resize(small, box).resize(picture.size, box))


def jpeg_compression(pixels: Pixels, rng: Generator, quality: int) -> Pixels:
    """Stores as JPEG and reads back."""
    file = BytesIO()
    to_picture(pixels).save(file, "JPEG", quality=quality)
    with Image.open(file) as stored:
        return to_pixels(stored.convert("RGB"))


def _affine(rng: Generator, height: int, width: int, shift: float) -> Pixels:
    """Where a pixel (y, x, 1) of the new picture was in the old one, when three points around the middle moved."""
    reach = max(1, min(height, width) // 3)
    before = np.array([height // 2, width // 2]) + reach * np.array([[1, 1], [-1, 1], [-1, -1]])
    after = before + rng.uniform(-shift, shift, before.shape)
    return np.asarray(np.linalg.solve(np.column_stack([after, np.ones(3)]), before).T)


def _sample(pixels: Pixels, y: Pixels, x: Pixels, *, edge_twice: bool) -> Pixels:
    """Values between pixels, by linear interpolation; beyond its edge the picture is mirrored, with the edge or not."""
    height, width = pixels.shape[:2]
    if edge_twice:
        grid = np.stack([(2 * x + 1) / width, (2 * y + 1) / height], -1) - 1
    else:
        grid = np.stack([2 * x / max(1, width - 1), 2 * y / max(1, height - 1)], -1) - 1
    planes = torch.from_numpy(pixels).permute(2, 0, 1)[None]
    where = torch.from_numpy(grid)[None]
    sampled = grid_sample(planes, where, padding_mode="reflection", align_corners=not edge_twice)
    return np.asarray(sampled[0].permute(1, 2, 0).numpy())


def _smooth(field: Pixels, sigma: float) -> Pixels:
    """A Gaussian filter of three deviations each way, on a field that is mirrored at its edges."""
    height, width = field.shape
    # Mirrored once, the field repeats itself, so a circular filter is exact however wide it is.
    mirrored = np.pad(field, ((0, height), (0, width)), mode="symmetric")
    radius = int(3 * sigma + 0.5)
    weights = gaussian_weights(sigma, radius)
    rows, columns = (
        np.bincount(np.arange(-radius, radius + 1) % side, weights, side) for side in (2 * height, 2 * width)
    )
    spectrum = np.fft.rfft2(mirrored) * np.fft.fft(rows)[:, None] * np.fft.rfft(columns)
    return np.asarray(np.fft.irfft2(spectrum, mirrored.shape)[:height, :width])
