"""GoldenNet written out as formulas on a table of tensors, in float64 and plain autograd.

Nothing here is the library's. Second forms of methods are made of this: a pass under any normalization, optimizers by
hand.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import conv2d

from tests.conftest import GoldenNet, batch, stir

NORMS = [f"{name}.{part}" for name in ("bn1", "bn2", "bn3") for part in ("weight", "bias")]
BATCHES = [batch(6, 3, 12, 12, seed=seed, dtype=torch.float64) for seed in range(4)]

Weights = dict[str, Tensor]
Norm = Callable[[str, Tensor], Tensor]  # a layer's name and its input -> the normalized input, before scale and shift


def network(seed: int = 0) -> GoldenNet:
    torch.manual_seed(seed)
    return stir(GoldenNet()).double()


def table(net: GoldenNet) -> Weights:
    """All tensors, running statistics among them."""
    return {name: t.detach().clone() for name, t in net.state_dict().items()}


def weights_of(net: GoldenNet) -> Weights:
    """What can learn."""
    return {name: p.detach().clone() for name, p in net.named_parameters()}


def with_moments(h: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    return (h - mean.view(1, -1, 1, 1)) / (var.view(1, -1, 1, 1) + 1e-5) ** 0.5


def by_batch(name: str, h: Tensor) -> Tensor:
    """Batch statistics, variance biased."""
    mean = h.mean((0, 2, 3))
    return with_moments(h, mean, ((h - mean.view(1, -1, 1, 1)) ** 2).mean((0, 2, 3)))


def by_running(p: Weights) -> Norm:
    """The running statistics of a table."""
    return lambda name, h: with_moments(h, p[f"{name}.running_mean"], p[f"{name}.running_var"])


def features(p: Weights, x: Tensor, norm: Norm = by_batch) -> Tensor:
    """What the head is given."""

    def normed(name: str, h: Tensor) -> Tensor:
        return norm(name, h) * p[f"{name}.weight"].view(1, -1, 1, 1) + p[f"{name}.bias"].view(1, -1, 1, 1)

    h = normed("bn1", conv2d(x, p["c1.weight"], padding=1)).clamp(min=0)
    h = normed("bn2", conv2d(h, p["c2.weight"], stride=2, padding=1)).clamp(min=0)
    h = (normed("bn3", conv2d(h, p["c3.weight"], padding=1)) + h).clamp(min=0)
    return h.mean((2, 3))


def logits(p: Weights, x: Tensor, norm: Norm = by_batch) -> Tensor:
    return features(p, x, norm) @ p["fc.weight"].T + p["fc.bias"]


def probabilities(z: Tensor) -> Tensor:
    """Of logits, of one image or of many."""
    e = (z - z.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def descend(p: Weights, names: list[str], loss: Callable, lr: float, momentum: float, speed: Weights) -> float:
    """A step of gradient descent with momentum on some of the table, in place; the loss before it."""
    own = {name: p[name].detach().requires_grad_() for name in names}
    value = loss({**p, **own})
    for name, gradient in zip(names, torch.autograd.grad(value, list(own.values())), strict=True):
        speed[name] = momentum * speed.get(name, 0) + gradient
        p[name] = p[name] - lr * speed[name]
    return value.item()


def leaves(weights: Weights) -> Weights:
    return {name: w.detach().clone().requires_grad_() for name, w in weights.items()}


def gradients(loss: Tensor, weights: Weights) -> Weights:
    found = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
    return {name: torch.zeros_like(w) if g is None else g for (name, w), g in zip(weights.items(), found, strict=True)}


class Adam:
    """By its paper."""

    def __init__(self, lr: float) -> None:
        self.lr, self.count, self.first, self.second = lr, 0, {}, {}

    def step(self, weights: Weights, grads: Weights) -> Weights:
        self.count += 1
        moved = {}
        for name, w in weights.items():
            g = grads[name]
            self.first[name] = 0.9 * self.first.get(name, torch.zeros_like(g)) + 0.1 * g
            self.second[name] = 0.999 * self.second.get(name, torch.zeros_like(g)) + 0.001 * g * g
            m, v = self.first[name] / (1 - 0.9**self.count), self.second[name] / (1 - 0.999**self.count)
            moved[name] = w.detach() - self.lr * m / (v.sqrt() + 1e-8)
        return moved
