"""Running statistics of batch norms in training: frozen, re-estimated, and their variance."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from domainadaptor.errors import BadBatch

T = TypeVar("T")


def norm_layers(network: nn.Module) -> dict[str, _BatchNorm]:
    """Return the layers with running statistics, by name."""
    return {name: m for name, m in network.named_modules() if isinstance(m, _BatchNorm) and m.running_mean is not None}


@contextmanager
def frozen_statistics(network: nn.Module) -> Iterator[None]:
    """Leave the running statistics unchanged by passes in train mode."""
    layers = [layer for layer in norm_layers(network).values() if layer.track_running_stats]
    for layer in layers:
        layer.track_running_stats = False
    try:
        yield
    finally:
        for layer in layers:
            layer.track_running_stats = True


@contextmanager
def batch_statistics(network: nn.Module) -> Iterator[None]:
    """Normalize by the statistics of each batch, and leave the running statistics unchanged."""
    layers = list(norm_layers(network).values())
    modes = [layer.training for layer in layers]
    for layer in layers:
        layer.train()
    try:
        with frozen_statistics(network):
            yield
    finally:
        for layer, mode in zip(layers, modes, strict=True):
            layer.train(mode)


@torch.no_grad()
def reestimate_statistics(network: nn.Module, batches: Iterable[T], run: Callable[[T], object]) -> None:
    """Set the running statistics to their mean over batches that `run` passes through the network, one by one."""
    layers = norm_layers(network).values()
    momenta = [layer.momentum for layer in layers]
    modes = {module: module.training for module in network.modules()}
    remaining = iter(batches)
    if (first := next(remaining, None)) is None:
        raise BadBatch("expected batches to estimate running statistics from, got none; pass training images")
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # a cumulative mean
    network.train()
    try:
        for images in chain([first], remaining):
            run(images)
    finally:
        for module, mode in modes.items():  # layers may be in another mode than the network
            module.training = mode
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum


class StatisticsTracker:
    """The variance of each layer's batch statistics over training steps, derived from its running statistics.

    A running mean moves toward the batch's by a share of `momentum`, so its change determines the batch's. If a step
    has several passes, this is their mean, with slightly larger weights for later ones.
    """

    def __init__(self, network: nn.Module) -> None:
        self._layers = {name: layer for name, layer in norm_layers(network).items() if layer.momentum}
        self.refresh()
        self._count = 0
        self._mean = {name: torch.zeros_like(value) for name, value in self._held.items()}  # of means and deviations
        self._squares = {name: torch.zeros_like(value) for name, value in self._held.items()}

    @torch.no_grad()
    def add(self) -> None:
        """Include the last step."""
        self._count += 1
        for name, layer in self._layers.items():
            now, passes = _running(layer), _passes(layer)
            assert layer.momentum is not None
            moved = 1 - (1 - layer.momentum) ** max(1, passes - self._passes[name])
            mean, var = self._held[name] + (now - self._held[name]) / moved
            batch = torch.stack([mean, var.clamp(min=0).sqrt()])  # rounding can leave a tiny variance below zero
            # Welford's update: sums of squares of large numbers would lose their difference.
            before = batch - self._mean[name]
            self._mean[name] += before / self._count
            self._squares[name] += before * (batch - self._mean[name])
            self._held[name], self._passes[name] = now, passes

    def refresh(self) -> None:
        """Continue from the current running statistics, after something besides a step changed them."""
        self._held = {name: _running(layer) for name, layer in self._layers.items()}
        self._passes = {name: _passes(layer) for name, layer in self._layers.items()}

    def resume_state(self) -> dict[str, Any]:
        """Return copies of everything that a later process needs to resume."""
        parts = {"held": self._held, "mean": self._mean, "squares": self._squares}
        return {"count": self._count, **{part: _copied(tensors) for part, tensors in parts.items()}}

    def resume(self, state: dict[str, Any]) -> None:
        """Resume from such a state."""
        self.refresh()
        self._count = state["count"]
        self._held, self._mean, self._squares = (_copied(state[part]) for part in ("held", "mean", "squares"))

    def by_layer(self) -> dict[str, dict[str, float]]:
        """Return the variance over steps of each layer's batch means and deviations, averaged over channels."""
        share = 1 / max(1, self._count - 1)
        return {
            name: {"mean": float(squares[0].mean() * share), "std": float(squares[1].mean() * share)}
            for name, squares in self._squares.items()
        }


def _copied(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def _passes(layer: _BatchNorm) -> int:
    return 0 if layer.num_batches_tracked is None else int(layer.num_batches_tracked)


def _running(layer: _BatchNorm) -> Tensor:
    assert layer.running_mean is not None
    assert layer.running_var is not None
    return torch.stack([layer.running_mean, layer.running_var]).double()
