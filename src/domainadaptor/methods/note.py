"""NOTE: instance-aware batch norm and a class-balanced bank of images. Gong et al., NeurIPS 2022."""

from collections.abc import Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

import domainadaptor as da
from domainadaptor import method
from domainadaptor import option_types as t
from domainadaptor.methods._bank import BankAdaptor
from domainadaptor.norms.base import AdaptiveNorm
from domainadaptor.norms.instance_aware import InstanceAwareBatchNorm2d, corrected
from domainadaptor.norms.moments import in_float32

__all__ = ["Note"]


class ReservoirBank(da.Stateful):
    """A class-balanced bank of images; within a class, every image seen is equally likely to be stored (PBRS)."""

    kept = ("images", "labels", "counts", "seen")
    images: tuple[Tensor, ...] = ()  # (C, H, W) each
    labels: tuple[int, ...] = ()
    counts: Mapping[int, int] = {}  # class -> number of images offered
    seen: int = 0  # number of images offered

    def __init__(self, capacity: int, seed: int) -> None:
        self.capacity = capacity
        self._random = da.SeededGenerator(seed)

    def _parts(self) -> Sequence[da.Stateful]:
        return (self._random,)

    def add(self, image: Tensor, label: int) -> None:
        """Offer an image. If the bank is full, it replaces another one or is dropped."""
        self.seen += 1
        self.counts = {**self.counts, label: self.counts.get(label, 0) + 1}
        if len(self.labels) >= self.capacity:
            at = self._replaced(label)
            if at is None:
                return
            self.images = self.images[:at] + self.images[at + 1 :]
            self.labels = self.labels[:at] + self.labels[at + 1 :]
        self.images, self.labels = (*self.images, image), (*self.labels, label)

    def _replaced(self, label: int) -> int | None:
        """Return the position that an image of a class replaces; None drops the image."""
        sizes = {k: self.labels.count(k) for k in sorted(set(self.labels))}
        largest = [k for k, size in sizes.items() if size == max(sizes.values())]
        if label not in largest:
            label = largest[self._below(len(largest))]
        elif self._uniform() > sizes[label] / self.counts[label]:
            return None
        positions = [at for at, k in enumerate(self.labels) if k == label]
        return positions[self._below(len(positions))]

    def _uniform(self) -> float:
        return float(torch.rand((), generator=self._random.generator, dtype=torch.float64, device="cpu"))

    def _below(self, count: int) -> int:
        return int(self._uniform() * count)


@final
class AwareNorm(AdaptiveNorm):
    """Normalize as the trained layer does in eval mode, or as in train mode while `following`."""

    scale: nn.Parameter
    shift: nn.Parameter
    mean: Tensor
    var: Tensor
    measured = ("_measured",)
    follows = True

    def __init__(self, layer: InstanceAwareBatchNorm2d) -> None:
        super().__init__(layer)
        assert layer.running_mean is not None
        assert layer.running_var is not None
        self.eps, self.band = float(layer.eps), float(layer.band)
        self._dtype = layer.running_mean.dtype
        self.learns = ("scale", "shift") if layer.affine else ()
        mean, var = (in_float32(t.detach()) for t in (layer.running_mean, layer.running_var))
        weight = in_float32(layer.weight.detach()) if layer.affine else torch.ones_like(mean)
        bias = in_float32(layer.bias.detach()) if layer.affine else torch.zeros_like(mean)
        self._add_state(parameter=True, scale=weight, shift=bias)
        self._add_state(mean=mean, var=var)
        self.tail = nn.Sequential(*layer.children())  # timm's layers contain the activation
        self._measured: tuple[Tensor, Tensor] | None = None

    def forward(self, images: Tensor) -> Tensor:
        """Normalize a batch (N, C, H, W)."""
        self.uses.append(None)
        x = in_float32(images)
        space = x.shape[2] * x.shape[3]
        mean, var = self.mean, self.var
        if self.following is not None and len(x) * space > 1:
            var, mean = torch.var_mean(x, dim=(0, 2, 3), unbiased=True)
            self._measured = mean.detach(), var.detach()
            if space == 1:  # plain batch norm, which uses the biased variance
                var = torch.var(x, dim=(0, 2, 3), unbiased=False)
        shape = (-1, 1, 1)
        if space > 1:
            y = corrected(x, mean, var, self.eps, self.band)
        else:  # an image of one pixel has no variance
            y = (x - mean.view(shape)) * (var + self.eps).rsqrt().view(shape)
        y = y * self.scale.view(shape) + self.shift.view(shape)
        out: Tensor = self.tail(y.to(images.dtype))
        return out

    @torch.no_grad()
    def _end_batch(self) -> None:
        if self._measured is not None and self.following is not None:
            for running, batch in zip((self.mean, self.var), self._measured, strict=True):
                running.lerp_(batch, self.following)

    def learned(self) -> dict[str, Tensor]:
        """Return statistics, scale and shift."""
        values: dict[str, Tensor] = {"running_mean": self.mean, "running_var": self.var}
        return values | {"weight": self.scale, "bias": self.shift} if self.learns else values

    def plain_values(self) -> dict[str, Tensor]:
        """Return statistics, scale and shift in the trained layer's precision."""
        return {name: value.detach().to(self._dtype) for name, value in self.learned().items()}


@method(
    paper="Gong et al., NOTE",
    year=2022,
    kind="loss",
    forwards="1, and 1 for every 64 images",
    backwards="1 for every 64 images",
    needs=("altered training",),
    options=BankAdaptor,
)
@final
class Note(BankAdaptor):
    """Instance-aware norms and a class-balanced image bank.

    The statistics follow the stream: hostile batches can cost more than ten points for a time, also with guard=True.

    Args:
        network: A network trained with instance-aware batch norm (`domainadaptor train ... --norm iabn`).
        predict: "before" an image is used as published, or "after" the batch with one more forward pass.
        seed: Random seed of the images that leave the bank.
    """

    _bank: ReservoirBank
    refreshes = True

    def __init__(
        self,
        network: nn.Module,
        *,
        capacity: t.Capacity = 64,
        share: t.BankShare = 0.01,
        lr: t.LearningRate = 1e-4,
        seed: t.Seed = 0,
        **steps: Any,
    ) -> None:
        super().__init__(network, ReservoirBank(capacity, seed), share, lr=lr, **steps)

    def _build(self) -> da.AdaptiveNetwork:
        self._student = self._adaptive(norm=None, learns="norms", special=_replacements)
        return self._student

    def _parts(self) -> Sequence[da.Stateful]:
        return self._bank, self._optimizer

    def _facts(self, logits: Tensor) -> list[tuple[int]]:
        return [(label,) for label in logits.argmax(1).tolist()]

    def _bank_loss(self, like: Tensor) -> Tensor:
        images = torch.stack(self._bank.images).to(like)
        return da.entropy(da.in_loss_precision(self._main(images))).mean()


def _replacements(network: nn.Module) -> dict[str, AwareNorm]:
    layers = {name: m for name, m in network.named_modules() if isinstance(m, InstanceAwareBatchNorm2d)}
    if not layers or any(layer.running_mean is None for layer in layers.values()):
        raise da.UnsupportedNetwork(
            "NOTE needs a network that was trained with instance-aware batch norm and has running statistics, but "
            f"{type(network).__name__} has none. Train one with `domainadaptor train ... --norm iabn`."
        )
    return {name: AwareNorm(layer) for name, layer in layers.items()}
