"""Hostile images in a batch: gradient ascent on the error of the others' adapted predictions.

White-box: the attacker knows the network, the method and the other images of the batch with their labels, and may
choose any pixels. DomainAdaptor-T is written out here with gradients through the statistics, alpha, the folding, the
gradient step and the second pass; only the temperature is a constant. A test compares this form with the library.
"""

import torch
from torch import Tensor, nn
from torch.autograd import grad
from torch.nn.functional import cross_entropy


class Unrolled:
    """DomainAdaptor-T on one batch, as a function with gradients from all logits to all images."""

    def __init__(self, network: nn.Module, lr: float = 1e-3) -> None:
        self._network, self._lr = network, lr
        self._layers = [layer for layer in network.modules() if isinstance(layer, nn.BatchNorm2d)]
        self._folded: list[tuple[Tensor, Tensor]] = []  # scale and shift by layer
        self._second = False

    def __call__(self, images: Tensor) -> Tensor:
        """Return the adapted logits."""
        hooks = [layer.register_forward_hook(self._replace) for layer in self._layers]
        try:
            self._folded, self._second = [], False
            self._network(images)
            start, self._second = list(self._folded), True
            logits = self._network(images)
            flat = [tensor for pair in start for tensor in pair]
            steps = grad(gem_t(logits), flat, create_graph=True)
            moved = [tensor - self._lr * step for tensor, step in zip(flat, steps, strict=True)]
            self._folded = list(zip(moved[::2], moved[1::2], strict=True))
            return self._network(images)
        finally:
            for hook in hooks:
                hook.remove()

    def _replace(self, layer: nn.BatchNorm2d, inputs: tuple[Tensor], output: Tensor) -> Tensor:
        (x,) = inputs
        var, mean = torch.var_mean(x, (0, 2, 3))
        if not self._second:
            scale, shift = fold(layer, x, mean, var)
            self._folded.append((scale.clone(), shift.clone()))  # the step does not see how they came about
        else:
            scale, shift = self._folded[self._layers.index(layer)]
        normal = (x - mean[:, None, None]) / (var + layer.eps).sqrt()[:, None, None]
        return normal * scale[:, None, None] + shift[:, None, None]


def fold(layer: nn.BatchNorm2d, x: Tensor, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
    """Return scale and shift with which batch statistics give what the mixed statistics give."""
    source_mean, source_var = layer.running_mean, layer.running_var
    own_var, own_mean = torch.var_mean(x, (2, 3))  # of each image
    own, batch, source = (
        (m, (v + 1e-12).sqrt()) for m, v in ((own_mean, own_var), (mean, var), (source_mean, source_var))
    )

    def distance(a, b):
        return sum(((p - q) ** 2).mean(-1) for p, q in zip(a, b, strict=True))

    apart = distance(source, batch)
    alpha = 1 - (apart / (distance(own, batch) + distance(own, source) + apart)).mean()
    deviation = (var + layer.eps).sqrt()
    scale = deviation / (alpha * source_var + (1 - alpha) * var + layer.eps).sqrt() * layer.weight
    return scale, alpha * (mean - source_mean) / deviation * scale + layer.bias


def gem_t(logits: Tensor) -> Tensor:
    """Return the softened entropy: each image by its own temperature, weighted by the mean one."""
    temperature = 2 * logits.detach().std(1, keepdim=True)
    soft = (logits / temperature).log_softmax(1)
    return -(temperature.square().mean() * (soft.exp() * soft).sum(1)).mean()


def attack(
    unrolled: Unrolled, clean: Tensor, labels: Tensor, hostile: Tensor, *, steps: int, normalize, rate: float = 0.1
) -> Tensor:
    """Return hostile pixels, multiples of 1/255, that raise the error of the clean images' adapted predictions."""
    pixels, best, worst = hostile.clone(), hostile, -1.0
    for step in range(steps + 1):
        pixels.requires_grad_()
        logits = unrolled(normalize(torch.cat([clean, pixels])))[: len(clean)]
        loss = cross_entropy(logits, labels)
        if loss.item() > worst:
            best, worst = pixels.detach().clone(), loss.item()
        (slope,) = grad(loss, pixels)
        size = rate * (1 - step / (steps + 1))
        pixels = (pixels.detach() + size * slope.sign()).clamp(0, 1)
    return (best * 255).round() / 255
