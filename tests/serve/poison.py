"""Hostile images in a batch: gradient ascent on the error of the others' adapted predictions.

White-box: the attacker knows the network, the method and the other images of the batch with their labels, and may
choose any pixels. The default method, auto, is written out here with gradients through statistics, shift, share and
views. A test compares this form with the library.
"""

import torch
from torch import Tensor, nn
from torch.autograd import grad
from torch.nn.functional import cross_entropy

from domainadaptor.augmentation.crops import zoomed
from domainadaptor.norms.shift import share_of


class Unrolled:
    """auto on one batch, as a function with gradients from all logits to all images."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._layers = [layer for layer in network.modules() if isinstance(layer, nn.BatchNorm2d)]

    def __call__(self, images: Tensor) -> Tensor:
        """Return the adapted logits."""
        hooks = [layer.register_forward_hook(_mixed) for layer in self._layers]
        try:
            logs = [self._network(view).log_softmax(1) for view in (images, zoomed(images, 0.06), images.flip(-1))]
        finally:
            for hook in hooks:
                hook.remove()
        changed = [(view.argmax(1) != logs[0].argmax(1)).float().mean() for view in logs]
        if changed[2] > 1.25 * changed[1] + 0.05:  # the network tells left from right
            logs.pop()
        return torch.stack(logs).logsumexp(0)


def _mixed(layer: nn.BatchNorm2d, inputs: tuple[Tensor], output: Tensor) -> Tensor:
    (x,) = inputs
    batch_var, batch_mean = torch.var_mean(x, (0, 2, 3))
    own_var, own_mean = torch.var_mean(x, (2, 3), correction=0)  # of each image

    def distance(mean: Tensor, var: Tensor) -> Tensor:
        apart = (var + 1e-12).sqrt() - (batch_var + 1e-12).sqrt()  # whose gradient is finite at 0
        return ((mean - batch_mean) ** 2 + apart**2).mean()

    shift = distance(layer.running_mean, layer.running_var) / distance(own_mean, own_var) - 1 / (len(x) - 1)
    share = share_of(shift, len(x))
    mean, var = (
        ((1 - share) * source + share * batch)[:, None, None]
        for source, batch in ((layer.running_mean, batch_mean), (layer.running_var, batch_var))
    )
    return (x - mean) / (var + layer.eps).sqrt() * layer.weight[:, None, None] + layer.bias[:, None, None]


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
