"""Blur: defocus, frosted glass, motion, zoom."""

import math
from typing import Literal

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch.nn.functional import interpolate

from domainadaptor.lab.data.corruptions.pixels import PixelArray, to_bytes


def defocus_blur(pixels: PixelArray, rng: Generator, radius: float, softness: float) -> PixelArray:
    """Spread every pixel over a disk with a soft edge."""
    return _filter(pixels, _disk(radius, softness), "reflect")


def glass_blur(pixels: PixelArray, rng: Generator, sigma: float, reach: int, rounds: int) -> PixelArray:
    """Blur, replace pixels by nearby ones, and blur again."""
    # Four standard deviations on each side, as in scikit-image.
    line = gaussian_weights(sigma, int(4 * sigma + 0.5))
    kernel = np.outer(line, line)
    # In eight bits, because the published program shuffles bytes.
    shuffled = to_bytes(_filter(pixels, kernel, "edge")) / 255
    for _ in range(rounds):
        shuffled = _take_from_nearby(shuffled, rng, reach)
    return _filter(shuffled, kernel, "edge")


def motion_blur(pixels: PixelArray, rng: Generator, radius: int, sigma: float) -> PixelArray:
    """Smear in a random direction, at most 45 degrees from the horizontal."""
    return smear(pixels, radius, sigma, rng.uniform(-45, 45))


def zoom_blur(pixels: PixelArray, rng: Generator, stop: float, step: float) -> PixelArray:
    """Average the image and enlargements of its center."""
    # arange with such a step sometimes includes the end; the published images were made like this.
    factors = np.arange(1, stop, step)
    total = pixels.copy()
    for factor in factors:
        total += enlarge(pixels, float(factor))
    return np.asarray(total / (len(factors) + 1))


def smear(pixels: PixelArray, radius: int, sigma: float, angle: float) -> PixelArray:
    """Filter with half a Gaussian along a line, as ImageMagick does: in whole pixels, rounded to eight bits."""
    weights = np.exp(-(np.arange(2 * radius + 1) ** 2) / (2 * sigma**2))
    weights /= weights.sum()
    turn = math.radians(angle)
    steps = [(math.ceil(i * math.sin(turn) - 0.5), math.ceil(i * math.cos(turn) - 0.5)) for i in range(len(weights))]
    height, width = pixels.shape[:2]
    border = 2 * radius
    padded = _pad(pixels, border, border, "edge")
    smeared = np.zeros_like(pixels)
    for weight, (down, right) in zip(weights, steps, strict=True):
        top, left = border + down, border + right
        smeared += weight * padded[top : top + height, left : left + width]
    return np.asarray(np.rint(smeared * 255) / 255)


def enlarge(pixels: PixelArray, factor: float) -> PixelArray:
    """Enlarge the center of an image to its full size, by bilinear interpolation with aligned corners."""
    height, width = pixels.shape[:2]
    rows, columns = math.ceil(height / factor), math.ceil(width / factor)
    planes = torch.from_numpy(_middle(pixels, rows, columns).reshape(rows, columns, -1)).permute(2, 0, 1)
    size = (round(rows * factor), round(columns * factor))
    larger = interpolate(planes[None], size=size, mode="bilinear", align_corners=True)[0]
    return _middle(larger.permute(1, 2, 0).numpy(), height, width).reshape(pixels.shape)


def gaussian_weights(sigma: float, radius: int) -> PixelArray:
    """Return the weights of a Gaussian filter, from -radius to radius."""
    weights = np.exp(-(np.arange(-radius, radius + 1) ** 2) / (2 * sigma**2))
    return np.asarray(weights / weights.sum())


def _disk(radius: float, softness: float) -> PixelArray:
    extent = int(max(radius, 8))
    line = np.arange(-extent, extent + 1)
    disk = (line[:, None] ** 2 + line**2 <= radius**2).astype(np.float64)
    soft = gaussian_weights(softness, 1 if radius <= 8 else 2)
    return _filter(disk / disk.sum(), np.outer(soft, soft), "reflect")


def _middle(pixels: PixelArray, height: int, width: int) -> PixelArray:
    top, left = (pixels.shape[0] - height) // 2, (pixels.shape[1] - width) // 2
    return pixels[top : top + height, left : left + width]


def _filter(pixels: PixelArray, kernel: PixelArray, edge: Literal["edge", "reflect"]) -> PixelArray:
    """Convolve with a kernel of odd size, by Fourier transform: large disks cost no more than small ones."""
    rows, columns = kernel.shape
    padded = _pad(pixels, rows // 2, columns // 2, edge)
    size = padded.shape[:2]
    spectrum = np.fft.rfft2(kernel, size)
    # One channel at a time, since spectra of large images need a lot of memory. The convolution is circular: the first
    # rows and columns wrap around.
    colors = [
        np.fft.irfft2(np.fft.rfft2(color) * spectrum, size)[rows - 1 :, columns - 1 :]
        for color in padded.reshape(*size, -1).transpose(2, 0, 1)
    ]
    return np.stack(colors, -1).reshape(pixels.shape)


def _pad(pixels: PixelArray, rows: int, columns: int, edge: Literal["edge", "reflect"]) -> PixelArray:
    border = [(rows, rows), (columns, columns)] + [(0, 0)] * (pixels.ndim - 2)
    return np.asarray(np.pad(pixels, border, mode=edge))


def _take_from_nearby(pixels: PixelArray, rng: Generator, reach: int) -> PixelArray:
    """Do one round of the published loop at once, with the same result for the same random numbers.

    The loop goes from the last pixel to the first and is meant to swap each with a nearby one, but swapping two views
    only copies the other pixel. A pixel gets the color that the other one has at that time: its old color if the loop
    has not reached it, otherwise the color that it was given, and so on along a chain.
    """
    height, width = pixels.shape[:2]
    y, x = np.meshgrid(np.arange(reach + 1, height - reach + 1), np.arange(reach + 1, width - reach + 1), indexing="ij")
    down, right = rng.integers(-reach, reach, (2, *y.shape))
    other: NDArray[np.int64] = np.arange(height * width)
    here = (y * width + x).ravel()
    other[here] = ((y + down) * width + x + right).ravel()
    origin = other[here]
    passed = np.flatnonzero(origin > here)
    while len(passed):
        link = origin[passed]
        origin[passed] = other[link]
        passed = passed[other[link] > link]
    flat = pixels.reshape(height * width, -1).copy()
    flat[here] = flat[origin]
    return np.asarray(flat.reshape(pixels.shape))
