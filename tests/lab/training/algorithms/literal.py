"""GoldenNet in train mode, written a second time as formulas on a table of tensors, in plain autograd."""

import torch
from torch import Tensor

from domainadaptor.lab.data.loaders import DomainBatch
from tests.conftest import GoldenNet, batch, stir

CLASSES = 7


def network(seed: int = 0) -> GoldenNet:
    torch.manual_seed(seed)
    return stir(GoldenNet()).double().train()


def domain_batches(count: int = 3, images: int = 6, seed: int = 0) -> list[DomainBatch]:
    generator = torch.Generator().manual_seed(seed)
    return [
        DomainBatch(
            batch(images, 3, 8, 8, seed=seed + 10 * at, dtype=torch.float64) * (1 + 0.3 * at),
            torch.randint(CLASSES, (images,), generator=generator),
            f"domain {at}",
        )
        for at in range(count)
    ]


def table(net: GoldenNet) -> dict[str, Tensor]:
    return {name: p.detach().clone().requires_grad_() for name, p in net.named_parameters()}


def forward(p: dict[str, Tensor], x: Tensor) -> Tensor:
    def norm(h: Tensor, name: str) -> Tensor:
        mean = h.mean((0, 2, 3), keepdim=True)
        var = ((h - mean) ** 2).mean((0, 2, 3), keepdim=True)
        scale, shift = p[f"{name}.weight"].view(1, -1, 1, 1), p[f"{name}.bias"].view(1, -1, 1, 1)
        return (h - mean) / (var + 1e-5) ** 0.5 * scale + shift

    conv = torch.nn.functional.conv2d
    h = norm(conv(x, p["c1.weight"], padding=1), "bn1").clamp(min=0)
    h = norm(conv(h, p["c2.weight"], stride=2, padding=1), "bn2").clamp(min=0)
    h = (norm(conv(h, p["c3.weight"], padding=1), "bn3") + h).clamp(min=0)
    return h.mean((2, 3)) @ p["fc.weight"].T + p["fc.bias"]


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    chosen = logits[torch.arange(len(labels)), labels]
    return (logits.exp().sum(1).log() - chosen).mean()


def descended(p: dict[str, Tensor], loss: Tensor, names: list[str], lr: float, second: bool) -> dict[str, Tensor]:
    gradients = torch.autograd.grad(loss, [p[name] for name in names], create_graph=True)
    steps = dict(zip(names, gradients, strict=True))
    return {
        name: p[name] - lr * (steps[name] if second else steps[name].detach()) if name in steps else p[name]
        for name in p
    }
