"""A network that is sure of some images, as a module whose scales and shifts learn; its pass is the literal one."""

import torch

from tests.methods import literal
from tests.methods.literal import by_batch, probabilities


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
    net = literal.network()
    with torch.no_grad():
        net.fc.weight.normal_(0, 2)
        net.fc.bias.zero_()
        net.fc.bias -= forward(net, varied(64, 1000)).mean(0)
    return net


def forward(net, x, norm=by_batch):
    return literal.logits(dict(net.named_parameters()), x, norm)


def learned(net):
    """Scales and shifts."""
    return [net.get_parameter(name) for name in literal.NORMS]


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
