"""What the literal second forms share: a network that is sure of some images, and its pass by the formulas."""

import torch

from tests.conftest import GoldenNet, stir


def varied(count, seed, size=12):
    """Images that differ in colour and contrast, so that predictions differ too."""
    generator = torch.Generator().manual_seed(seed)
    noise, contrast, colour = (
        torch.randn(count, 3, *shape, generator=generator, dtype=torch.float64)
        for shape in ((size, size), (1, 1), (1, 1))
    )
    return noise * (1 + contrast.abs()) + 2 * colour


def network():
    """A head that is sure of some images and not of others, of several classes."""
    torch.manual_seed(0)
    net = stir(GoldenNet()).double()
    with torch.no_grad():
        net.fc.weight.normal_(0, 2)
        net.fc.bias.zero_()
        net.fc.bias -= forward(net, varied(64, 1000)).mean(0)
    return net


def normalized(h, weight, bias, eps=1e-5):
    """Batch normalization by its formula."""
    mean = h.mean((0, 2, 3), keepdim=True)
    var = ((h - mean) ** 2).mean((0, 2, 3), keepdim=True)
    return (h - mean) / (var + eps).sqrt() * weight.view(1, -1, 1, 1) + bias.view(1, -1, 1, 1)


def forward(net, x, norm=None):
    """The network under batch statistics, or under those of `norm(at, h)`."""
    norms = [net.bn1, net.bn2, net.bn3]
    norm = norm or (lambda at, h: normalized(h, norms[at].weight, norms[at].bias))
    h = norm(0, net.c1(x)).clamp(min=0)
    h = norm(1, net.c2(h)).clamp(min=0)
    h = (norm(2, net.c3(h)) + h).clamp(min=0)
    return net.fc(h.mean((2, 3)))


def learned(net):
    """Scales and shifts."""
    return [p for bn in (net.bn1, net.bn2, net.bn3) for p in (bn.weight, bn.bias)]


def probabilities(row):
    """Of one image's logits."""
    e = (row - row.max()).exp()
    return e / e.sum()


def surprise(row):
    """The entropy of one image's logits."""
    p = probabilities(row)
    return -(p * p.log()).sum()


@torch.no_grad()
def descend(parameters, gradients, speed, lr, momentum):
    """SGD with momentum by hand."""
    for p, g, v in zip(parameters, gradients, speed, strict=True):
        v.mul_(momentum).add_(g)
        p -= lr * v
