"""Noise of the sensor: Gaussian, of single photons, of broken pixels."""

import numpy as np
from numpy.random import Generator

from domainadaptor.lab.data.corruptions.pixels import Pixels


def gaussian_noise(pixels: Pixels, rng: Generator, deviation: float) -> Pixels:
    """Adds a normal number to every value."""
    return pixels + rng.normal(scale=deviation, size=pixels.shape)


def shot_noise(pixels: Pixels, rng: Generator, photons: float) -> Pixels:
    """Counts photons, of which white has `photons` on average."""
    return np.asarray(rng.poisson(pixels * photons) / photons)


def impulse_noise(pixels: Pixels, rng: Generator, share: float) -> Pixels:
    """Sets a share of the values to 0 or 1, each color on its own."""
    draws = rng.random(pixels.shape)
    return np.where(draws < share / 2, 0.0, np.where(draws < share, 1.0, pixels))
