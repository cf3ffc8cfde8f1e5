"""Views of CoTTA and RoTTA: color jitter, a small affine transform, blur, a flip and noise.

One draw is made for a whole batch, as in the authors' programs; only the noise differs between images.
"""

import math
from collections.abc import Callable
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import Tensor

from domainadaptor.augmentation.crops import affine

_GRAY = (0.2989, 0.587, 0.114)
_NOISE = 0.005
_KERNEL = 5  # size of the blur in pixels
_MARGIN = _KERNEL // 2


_RANGES = {
    "brightness": (0.6, 1.4),
    "contrast": (0.7, 1.3),
    "saturation": (0.5, 1.5),
    "hue": (-0.06, 0.06),  # fraction of a full turn
    "gamma": (0.7, 1.3),
    "angle": (-15.0, 15.0),  # degrees, clockwise
    "right": (-1 / 16, 1 / 16),  # fraction of twice the width: the program shifts the image after doubling its sides
    "down": (-1 / 16, 1 / 16),
    "scale": (0.9, 1.1),
    "blur": (0.001, 0.5),  # standard deviation in pixels
}


def draw(generator: torch.Generator) -> SimpleNamespace:
    """Draw the parameters of a view: one of each range, the order of the five color changes, and a flip."""
    order = torch.randperm(5, generator=generator, device="cpu").tolist()
    shares = torch.rand(len(_RANGES) + 1, generator=generator, dtype=torch.float64, device="cpu").tolist()
    values = {name: low + u * (high - low) for (name, (low, high)), u in zip(_RANGES.items(), shares[:-1], strict=True)}
    return SimpleNamespace(order=order, flip=shares[-1] < 0.5, **values)


def cotta_view(pixels: Tensor, generator: torch.Generator) -> Tensor:
    """Return one random view of every image, (N, C, H, W). Pixels are from 0 to 1."""
    view = changed(pixels, draw(generator))
    # Drawn in float32 on the CPU, so that every precision and device gets the same noise.
    noise = torch.randn(pixels.shape, generator=generator, dtype=torch.float32, device="cpu")
    return (view + _NOISE * noise.to(view)).clamp(0, 1)


def changed(pixels: Tensor, how: SimpleNamespace) -> Tensor:
    """Return a view, as drawn, without its noise."""
    view = pixels.clamp(0, 1)
    steps: tuple[Callable[[Tensor], Tensor], ...] = (
        lambda x: _blend(x, torch.zeros_like(x), how.brightness),
        lambda x: _blend(x, grayscale(x).mean((1, 2, 3), keepdim=True), how.contrast),
        lambda x: _blend(x, grayscale(x), how.saturation),
        lambda x: adjust_hue(x, how.hue),
        lambda x: x.pow(how.gamma),
    )
    for at in how.order:
        view = steps[at](view)
    # Rotated, shifted and scaled about the center, with a margin for the blur.
    cos, sin = math.cos(math.radians(how.angle)) / how.scale, math.sin(math.radians(how.angle)) / how.scale
    shift = how.right * 2 * view.shape[-1], how.down * 2 * view.shape[-2]
    view = affine(view, [[cos, sin, 0], [-sin, cos, 0]], shift, margin=_MARGIN, padding="border")
    view = _blur(view, how.blur)
    return view.flip(-1) if how.flip else view


def grayscale(pixels: Tensor) -> Tensor:
    """Return the brightness of every pixel, (N, 1, H, W); the mean if there are not three channels."""
    if pixels.shape[1] != 3:
        return pixels.mean(1, keepdim=True)
    return (pixels * pixels.new_tensor(_GRAY).view(3, 1, 1)).sum(1, keepdim=True)


def adjust_hue(pixels: Tensor, turn: float) -> Tensor:
    """Rotate hues by a fraction of a full turn; nothing changes if there are not three channels."""
    if pixels.shape[1] != 3:
        return pixels
    red, green, blue = pixels.unbind(1)
    high, low = pixels.amax(1), pixels.amin(1)
    span = high - low
    safe = torch.where(span == 0, 1.0, span)
    sixth = torch.where(
        high == red,
        (green - blue) / safe,
        torch.where(high == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    parts = []
    for own in (5, 3, 1):
        place = (own + sixth + 6 * turn).remainder(6)
        parts.append(high - span * torch.minimum(place, 4 - place).clamp(0, 1))
    return torch.stack(parts, 1)


def _blend(pixels: Tensor, other: Tensor, share: float) -> Tensor:
    return (share * pixels + (1 - share) * other).clamp(0, 1)


def _blur(pixels: Tensor, deviation: float) -> Tensor:
    weights = [math.exp(-0.5 * ((at - _MARGIN) / deviation) ** 2) for at in range(_KERNEL)]
    kernel = pixels.new_tensor([weight / sum(weights) for weight in weights])
    channels = pixels.shape[1]
    rows = kernel.view(1, 1, 1, -1).expand(channels, 1, 1, -1)
    columns = kernel.view(1, 1, -1, 1).expand(channels, 1, -1, 1)
    return F.conv2d(F.conv2d(pixels, rows, groups=channels), columns, groups=channels)
