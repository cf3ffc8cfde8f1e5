"""GoldenNet written out as functions of its tensors, for second forms of methods; nothing here is the library's."""

from collections.abc import Callable

import torch
from torch import Tensor

from tests.conftest import GoldenNet, stir

Weights = dict[str, Tensor]
Norm = Callable[[str, Tensor], Tensor]  # a layer's name and its input -> the normalized input, before scale and shift


def network() -> GoldenNet:
    torch.manual_seed(0)
    return stir(GoldenNet()).double()


def weights_of(net: GoldenNet) -> Weights:
    return {name: p.detach().clone() for name, p in net.named_parameters()}


def features(weights: Weights, x: Tensor, norm: Norm) -> Tensor:
    def normed(name: str, h: Tensor) -> Tensor:
        scale, shift = weights[f"{name}.weight"].view(1, -1, 1, 1), weights[f"{name}.bias"].view(1, -1, 1, 1)
        return norm(name, h) * scale + shift

    conv = torch.nn.functional.conv2d
    h = normed("bn1", conv(x, weights["c1.weight"], padding=1)).clamp(min=0)
    h = normed("bn2", conv(h, weights["c2.weight"], padding=1, stride=2)).clamp(min=0)
    h = (normed("bn3", conv(h, weights["c3.weight"], padding=1)) + h).clamp(min=0)
    return h.mean((2, 3))


def logits(weights: Weights, x: Tensor, norm: Norm) -> Tensor:
    return features(weights, x, norm) @ weights["fc.weight"].T + weights["fc.bias"]


def with_moments(h: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    return (h - mean.view(1, -1, 1, 1)) / (var.view(1, -1, 1, 1) + 1e-5).sqrt()


def by_batch(name: str, h: Tensor) -> Tensor:
    """Batch statistics, variance biased."""
    return with_moments(h, h.mean((0, 2, 3)), h.var((0, 2, 3), correction=0))


def gradients(loss: Tensor, weights: Weights) -> Weights:
    found = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
    return {name: torch.zeros_like(w) if g is None else g for (name, w), g in zip(weights.items(), found, strict=True)}


def leaves(weights: Weights) -> Weights:
    return {name: w.detach().clone().requires_grad_() for name, w in weights.items()}


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


def probabilities(z: Tensor) -> Tensor:
    return z.exp() / z.exp().sum(1, keepdim=True)
