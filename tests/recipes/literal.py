"""GoldenNet written out as formulas on a table of tensors, in float64 and plain autograd."""

import torch
from torch import Tensor
from torch.nn.functional import conv2d

from tests.conftest import GoldenNet, batch, stir

NORMS = [f"{name}.{part}" for name in ("bn1", "bn2", "bn3") for part in ("weight", "bias")]
BATCHES = [batch(6, 3, 12, 12, seed=seed, dtype=torch.float64) for seed in range(4)]


def network(seed: int = 0) -> GoldenNet:
    torch.manual_seed(seed)
    return stir(GoldenNet()).double()


def table(net: GoldenNet) -> dict[str, Tensor]:
    return {name: t.detach().clone() for name, t in net.state_dict().items()}


def features(p: dict[str, Tensor], x: Tensor, m: float = 1.0) -> Tensor:
    """What the head is given; `m` is the weight of batch statistics."""

    def norm(h: Tensor, name: str) -> Tensor:
        mean = h.mean((0, 2, 3))
        var = ((h - mean.view(1, -1, 1, 1)) ** 2).mean((0, 2, 3))
        mean = m * mean + (1 - m) * p[f"{name}.running_mean"]
        var = m * var + (1 - m) * p[f"{name}.running_var"]
        h = (h - mean.view(1, -1, 1, 1)) / (var.view(1, -1, 1, 1) + 1e-5) ** 0.5
        return h * p[f"{name}.weight"].view(1, -1, 1, 1) + p[f"{name}.bias"].view(1, -1, 1, 1)

    h = norm(conv2d(x, p["c1.weight"], padding=1), "bn1").clamp(min=0)
    h = norm(conv2d(h, p["c2.weight"], stride=2, padding=1), "bn2").clamp(min=0)
    h = (norm(conv2d(h, p["c3.weight"], padding=1), "bn3") + h).clamp(min=0)
    return h.mean((2, 3))


def logits(p: dict[str, Tensor], x: Tensor, m: float = 1.0) -> Tensor:
    return features(p, x, m) @ p["fc.weight"].T + p["fc.bias"]


def softmax(z: Tensor) -> Tensor:
    return z.exp() / z.exp().sum(1, keepdim=True)


def descend(p: dict[str, Tensor], names: list[str], loss, lr: float, momentum: float, speed: dict) -> float:
    """A step of gradient descent with momentum on some of the table, in place; the loss before it."""
    leaves = {name: p[name].detach().requires_grad_() for name in names}
    value = loss({**p, **leaves})
    for name, gradient in zip(names, torch.autograd.grad(value, list(leaves.values())), strict=True):
        speed[name] = momentum * speed.get(name, 0) + gradient
        p[name] = p[name] - lr * speed[name]
    return value.item()
