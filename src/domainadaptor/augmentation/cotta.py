"""Views as CoTTA and RoTTA make them: color jitter, a small turn, a slight blur, a flip, a little noise.

One draw is made for a whole batch, as in their authors' programs; the noise alone differs from image to image.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

_GRAY = (0.2989, 0.587, 0.114)
_NOISE = 0.005
_KERNEL = 5  # of the blur, in pixels
_MARGIN = _KERNEL // 2


class Draw(NamedTuple):
    """What one view does to a batch of pixels from 0 to 1."""

    order: tuple[int, ...]  # of brightness, contrast, saturation, hue and gamma
    brightness: float
    contrast: float
    saturation: float
    hue: float  # a share of a full turn
    gamma: float
    angle: float  # degrees, clockwise
    right: float  # a share of twice the width: the program moves the image after it doubled its sides
    down: float
    scale: float
    blur: float  # deviation in pixels
    flip: bool


_RANGES = {
    "brightness": (0.6, 1.4),
    "contrast": (0.7, 1.3),
    "saturation": (0.5, 1.5),
    "hue": (-0.06, 0.06),
    "gamma": (0.7, 1.3),
    "angle": (-15.0, 15.0),
    "right": (-1 / 16, 1 / 16),
    "down": (-1 / 16, 1 / 16),
    "scale": (0.9, 1.1),
    "blur": (0.001, 0.5),
}


def draw(generator: torch.Generator) -> Draw:
    """One draw."""
    order = tuple(torch.randperm(5, generator=generator, device="cpu").tolist())
    shares = torch.rand(len(_RANGES) + 1, generator=generator, dtype=torch.float64, device="cpu").tolist()
    values = {name: low + u * (high - low) for (name, (low, high)), u in zip(_RANGES.items(), shares[:-1], strict=True)}
    return Draw(order=order, flip=shares[-1] < 0.5, **values)


def cotta_view(pixels: Tensor, generator: torch.Generator) -> Tensor:
    """One random view of every image, (N, C, H, W)."""
    view = changed(pixels, draw(generator))
    # Drawn in one precision on one device, so that every other gets the same noise.
    noise = torch.randn(pixels.shape, generator=generator, dtype=torch.float32, device="cpu")
    return (view + _NOISE * noise.to(view)).clamp(0, 1)


def changed(pixels: Tensor, how: Draw) -> Tensor:
    """A view without its noise."""
    view = pixels.clamp(0, 1)
    steps: tuple[Callable[[Tensor], Tensor], ...] = (
        lambda x: _blend(x, torch.zeros_like(x), how.brightness),
        lambda x: _blend(x, gray(x).mean((1, 2, 3), keepdim=True), how.contrast),
        lambda x: _blend(x, gray(x), how.saturation),
        lambda x: turned_hue(x, how.hue),
        lambda x: x.pow(how.gamma),
    )
    for at in how.order:
        view = steps[at](view)
    view = _blurred(_moved(view, how), how.blur)
    return view.flip(-1) if how.flip else view


def gray(pixels: Tensor) -> Tensor:
    """Brightness of every pixel, (N, 1, H, W); that of images that are not of three colors is their mean."""
    if pixels.shape[1] != 3:
        return pixels.mean(1, keepdim=True)
    return (pixels * pixels.new_tensor(_GRAY).view(3, 1, 1)).sum(1, keepdim=True)


def turned_hue(pixels: Tensor, turn: float) -> Tensor:
    """The color circle turned by a share of a full turn; images that are not of three colors stay."""
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


def _moved(pixels: Tensor, how: Draw) -> Tensor:
    """Turned, moved and scaled about the center, with a margin for the blur; beyond the edge is the edge's color."""
    height, width = pixels.shape[-2:]
    x = torch.arange(-_MARGIN, width + _MARGIN, device=pixels.device, dtype=pixels.dtype) - (width - 1) / 2
    y = torch.arange(-_MARGIN, height + _MARGIN, device=pixels.device, dtype=pixels.dtype) - (height - 1) / 2
    x, y = x - how.right * 2 * width, (y - how.down * 2 * height).unsqueeze(1)
    cos, sin = math.cos(math.radians(how.angle)) / how.scale, math.sin(math.radians(how.angle)) / how.scale
    grid = torch.stack([(cos * x + sin * y) * 2 / width, (cos * y - sin * x) * 2 / height], dim=-1)
    return F.grid_sample(
        pixels, grid.expand(len(pixels), -1, -1, -1), mode="bilinear", padding_mode="border", align_corners=False
    )


def _blurred(pixels: Tensor, deviation: float) -> Tensor:
    weights = [math.exp(-0.5 * ((at - _MARGIN) / deviation) ** 2) for at in range(_KERNEL)]
    kernel = pixels.new_tensor([weight / sum(weights) for weight in weights])
    channels = pixels.shape[1]
    rows = kernel.view(1, 1, 1, -1).expand(channels, 1, 1, -1)
    columns = kernel.view(1, 1, -1, 1).expand(channels, 1, -1, 1)
    return F.conv2d(F.conv2d(pixels, rows, groups=channels), columns, groups=channels)
