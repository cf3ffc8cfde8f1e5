import gc

import pytest
import torch
from torch import nn

import domainadaptor as da
from domainadaptor.lab.allocator import release_freed_memory
from domainadaptor.lab.measure import used_memory
from tests.conftest import batch, stir


class Leak(nn.Module):
    """Keeps a kilobyte of each batch: what the test below must notice."""

    def __init__(self, adaptor: nn.Module) -> None:
        super().__init__()
        self.adaptor, self.kept = adaptor, []

    def forward(self, images):
        self.kept.append(torch.ones(512))
        return self.adaptor(images)


def growth(adaptor: nn.Module) -> float:
    """Megabytes per thousand calls, from the second thousand to the tenth."""
    images = [batch(4, 3, 8, 8, seed=seed) for seed in range(10)]
    release_freed_memory()  # memory that earlier tests freed would hide a leak
    used = []
    for _ in range(10):
        for number in range(1000):
            adaptor(images[number % 10])
        gc.collect()
        used.append(used_memory() / 1e6)
    return (used[-1] - used[0]) / 9


@pytest.mark.slow
@pytest.mark.parametrize("method", ["adamixbn", "domainadaptor-t", "domainadaptor-aug", "tent"])
def test_memory_does_not_grow_with_the_number_of_batches(method):
    network = stir(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 36, 3)))
    adaptor = da.adapt(network, method)
    assert growth(adaptor) < 1
    if method == "adamixbn":
        assert growth(Leak(adaptor)) > 1
