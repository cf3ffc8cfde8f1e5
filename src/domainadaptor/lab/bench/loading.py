"""Images per second of decoding and of the cache, relative to plain inference in the same run."""

import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from domainadaptor.lab.bench.timing import BenchConfig, random_images
from domainadaptor.lab.data.augment import before_cropping
from domainadaptor.lab.data.domains import Domain
from domainadaptor.lab.data.image_cache import DomainImages
from domainadaptor.lab.data.loaders import TrainingBatches, ordered_batches
from domainadaptor.lab.data.preprocessing import squashed
from domainadaptor.lab.networks.zoo import find_network

_BATCH = 64
_MIN_SECONDS = 1.0  # faster work is repeated
_MAX_IMAGES = 2000  # evenly spaced over the domain


@dataclass(frozen=True)
class LoadingRate:
    """Speed of one way to load images."""

    way: str
    images_per_second: float
    times_plain: float  # relative to the network's plain inference


def loading_rates(domain: Domain, network: str, size: int) -> list[LoadingRate]:
    """Measure how fast a domain is loaded in several ways; the last entry is the network's plain inference."""
    preprocessing = squashed(size)
    domain = replace(domain, examples=domain.examples[:: -(-len(domain.examples) // _MAX_IMAGES)])
    uncached, cached, larger = (DomainImages(domain, squashed(side)) for side in (size, size, before_cropping(size)))
    with tempfile.TemporaryDirectory() as folder:
        for images in (cached, larger):
            images.cache(Path(folder))
        rates = {
            "decoded and resized": _rate(lambda: ordered_batches(uncached, preprocessing, "test", _BATCH)),
            "from the cache": _rate(lambda: ordered_batches(cached, preprocessing, "test", _BATCH)),
        }
        if domain.select("train"):
            training = TrainingBatches([larger], preprocessing, _BATCH, 0)
            rates["from the cache, augmented for training"] = _rate(
                lambda: ((b.images, b.labels) for b, *_ in training.epoch(0))
            )
    plain = _plain_rate(network, size)
    return [
        *(LoadingRate(way, rate, rate / plain) for way, rate in rates.items()),
        LoadingRate(f"{find_network(network).name} predicts", plain, 1.0),
    ]


def _rate(batches: Callable[[], Iterable[tuple[Tensor, Tensor]]]) -> float:
    start, images = time.perf_counter(), 0
    while True:
        images += sum(len(labels) for _, labels in batches())
        if (elapsed := time.perf_counter() - start) > _MIN_SECONDS:
            return images / elapsed


@torch.no_grad()
def _plain_rate(network: str, size: int) -> float:
    built = find_network(network).build(1000).to(memory_format=torch.channels_last)
    images = random_images(BenchConfig(network, _BATCH, size, 1))
    built(images)
    return _rate(lambda: [(built(images), images)])
