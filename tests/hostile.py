"""A trained network, streams of batches that mislead adaptation, and a probe of what they leave of the network."""

import copy
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import domainadaptor as da
from tests.conftest import suited

HOSTILE = ("one class", "sorted", "noise", "constant", "alternating", "tiny", "poisoned")
REMEMBERING = [name for name in da.list_methods() if da.method_info(name).defaults.get("reset_every", 1) != 1]
SIZE = 16


Labeled = tuple[Tensor, Tensor]
Digits = tuple[nn.Module, Labeled, Labeled]


def trained_on_digits() -> Digits:
    """Return a network of 98 %, images and labels to probe it with, and others for streams."""
    data = pytest.importorskip("sklearn.datasets").load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 8 - 1
    labels = torch.tensor(data.target)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        order = torch.randperm(len(images))
        images, labels = images[order], labels[order]
        net = _layers()
        adam = torch.optim.Adam(net.parameters(), lr=1e-2)
        for _ in range(7):
            for at in torch.randperm(1000).split(50):
                adam.zero_grad()
                F.cross_entropy(net(images[at]), labels[at]).backward()
                adam.step()
    return net.eval(), (images[1000:1300], labels[1000:1300]), (images[1300:], labels[1300:])


def _layers() -> nn.Module:
    blocks = []
    for inward, outward, stride in [(1, 12, 1), (12, 24, 2), (24, 24, 1)]:
        blocks += [nn.Conv2d(inward, outward, 3, stride=stride, padding=1, bias=False), nn.BatchNorm2d(outward)]
        blocks += [nn.ReLU()]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10))


def stream(kind: str, net: nn.Module, pool: Labeled, batches: int) -> Iterator[Tensor]:
    """Yield batches of one kind."""
    images, labels = pool
    g = torch.Generator().manual_seed(1)
    by_class = [images[labels == c] for c in range(10)]
    spoiled = poisoned(net, images) if kind == "poisoned" else images

    def some(pool, count=SIZE):
        return pool[torch.randint(len(pool), (count,), generator=g)]

    def noise():
        return torch.randn(SIZE, 1, 8, 8, generator=g)

    for at in range(batches):
        yield {
            "shuffled": lambda: some(images),
            "shuffled and shifted": lambda: 0.7 * some(images) + 0.2 * noise() + 0.2,
            "one class": lambda: some(by_class[3]),
            "sorted": lambda at=at: some(by_class[at * 10 // batches]),
            "noise": noise,
            "constant": lambda: torch.rand(1, generator=g) * 2 - torch.ones(SIZE, 1, 8, 8),
            "alternating": lambda at=at: some(images) if at % 2 else 0.3 * noise() - some(images),
            "tiny": lambda at=at: some(images, 1 + at % 2),
            "poisoned": lambda: torch.cat([some(images, SIZE // 2), some(spoiled, SIZE // 2)]),
        }[kind]()


def poisoned(net: nn.Module, images: Tensor, target: int = 3) -> Tensor:
    """Return the images changed, by at most a quarter of their range, until the network is sure of one wrong class."""
    goal = torch.full((len(images),), target)
    found = images.clone()
    for _ in range(10):
        found.requires_grad_(True)
        (slope,) = torch.autograd.grad(F.cross_entropy(net(found), goal), found)
        found = (found.detach() - 0.1 * slope.sign()).clamp(images - 0.5, images + 0.5)
    return found


def accuracy(adaptor: da.Adaptor, probe: Labeled) -> float:
    """Return the accuracy in percent on clean images now; asking teaches the adaptor nothing."""
    images, labels = probe
    return 100 * (adaptor.peek(images).logits.argmax(1) == labels).float().mean().item()


def course(method: str, kind: str, digits: Digits, batches: int, rate: float = 1.0) -> dict[str, Any]:
    """Return what a guarded method makes of the probe during and after a stream, in percent.

    `rate` is a factor of the authors' learning rate: a stream of a higher one does in a batch what takes several.
    """
    net, probe, pool = digits
    net = suited(copy.deepcopy(net), method)
    known = da.method_info(method).defaults
    wanted = {"source_images": pool[0], "mean": (0.5,), "std": (0.5,), "views": 2}
    options = {name: value for name, value in wanted.items() if name in known}
    if "lr" in known:
        options["lr"] = rate * known["lr"]
    adaptor = da.adapt(net, method, guard=True, **options)
    source, start = accuracy(da.adapt(net, "source"), probe), accuracy(adaptor, probe)
    seen, trips, begun = [], 0, time.perf_counter()
    for at, images in enumerate(stream(kind, net, pool, batches), start=1):
        trips += adaptor.adapt(images).collapsed
        if at % max(1, batches // 50) == 0 or at == batches:
            seen.append(accuracy(adaptor, probe))
    seconds = round(time.perf_counter() - begun, 1)
    return {"source": source, "start": start, "lowest": min(seen), "last": seen[-1], "trips": trips, "seconds": seconds}
