"""AugMix, as MEMO makes views: a crop mixed with three chains of mild changes. Hendrycks et al., ICLR 2020.

The changes and their strength are those of MEMO's authors (severity 1), on tensors instead of Pillow's images; angles
and distances are not rounded to whole degrees and pixels.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from domainadaptor.augmentation.crops import random_views

_CHAINS = 3
_DEEPEST = 3  # changes in a chain
_LEAST = 0.1  # the strength of a change is drawn from this to 1, of 10
_LEVELS = 255

_Uniform = Callable[[], float]


def augmix_views(pixels: Tensor, count: int, generator: torch.Generator, area: float) -> Tensor:
    """`count` views of each image of pixels from 0 to 1, in the order of `random_views`; crops keep `area` or more."""
    crops = random_views(pixels.clamp(0, 1), count, generator, (area, 1.0))

    def uniform() -> float:
        return float(torch.rand((), generator=generator, dtype=torch.float64, device="cpu"))

    return torch.cat([_mixed(crop, uniform) for crop in crops.split(1)])


def _mixed(crop: Tensor, uniform: _Uniform) -> Tensor:
    """A crop mixed with chains of changes of it, by weights from Dirichlet(1, 1, 1) and Beta(1, 1)."""
    shares = [-math.log(1 - uniform()) for _ in range(_CHAINS)]
    keep = uniform()
    total = torch.zeros_like(crop)
    for share in shares:
        chain = crop
        for _ in range(1 + int(_DEEPEST * uniform())):
            chain = CHANGES[int(len(CHANGES) * uniform())](chain, uniform)
        total = total + share / sum(shares) * chain
    return keep * crop + (1 - keep) * total


def _strength(uniform: _Uniform) -> float:
    return (_LEAST + (1 - _LEAST) * uniform()) / 10


def _signed(uniform: _Uniform) -> float:
    strength = _strength(uniform)
    return strength if uniform() < 0.5 else -strength


def stretched(pixels: Tensor) -> Tensor:
    """Every channel from 0 to 1: autocontrast."""
    low, high = pixels.amin((2, 3), keepdim=True), pixels.amax((2, 3), keepdim=True)
    span = high - low
    return torch.where(span > 0, (pixels - low) / torch.where(span > 0, span, 1.0), pixels)


def equalized(pixels: Tensor) -> Tensor:
    """Every channel with an even histogram of 256 levels."""
    levels = (pixels * _LEVELS).round().long()
    out = levels.clone()
    for image, made in zip(levels, out, strict=True):
        for channel, target in zip(image, made, strict=True):
            counts = torch.bincount(channel.flatten(), minlength=_LEVELS + 1)
            used = counts[counts > 0]
            step = int(used.sum() - used[-1]) // _LEVELS
            if step > 0:
                table = (counts.cumsum(0) - counts + step // 2) // step
                target.copy_(table.clamp(max=_LEVELS)[channel])
    return out.to(pixels) / _LEVELS


def posterized(pixels: Tensor, bits: int) -> Tensor:
    """Only the highest bits of each level."""
    size = 1 << (8 - bits)
    coarse = ((pixels * _LEVELS).round() / size).floor() * size
    return coarse / _LEVELS


def solarized(pixels: Tensor, threshold: float) -> Tensor:
    """Inverted where it is as bright as the threshold."""
    return torch.where(pixels >= threshold, 1 - pixels, pixels)


def moved(pixels: Tensor, matrix: list[list[float]]) -> Tensor:
    """Each pixel taken from the place that the matrix gives, in pixels from the center; black comes from outside."""
    height, width = pixels.shape[-2:]
    x = torch.arange(width, device=pixels.device, dtype=pixels.dtype) - (width - 1) / 2
    y = (torch.arange(height, device=pixels.device, dtype=pixels.dtype) - (height - 1) / 2).unsqueeze(1)
    across, down = (a * x + b * y + c for a, b, c in matrix)
    grid = torch.stack([across * 2 / width, down * 2 / height], dim=-1)
    return F.grid_sample(pixels, grid.expand(len(pixels), -1, -1, -1), padding_mode="zeros", align_corners=False)


def _rotate(x: Tensor, uniform: _Uniform) -> Tensor:
    angle = math.radians(30 * _signed(uniform))
    return moved(x, [[math.cos(angle), math.sin(angle), 0], [-math.sin(angle), math.cos(angle), 0]])


CHANGES: tuple[Callable[[Tensor, _Uniform], Tensor], ...] = (
    lambda x, _: stretched(x),
    lambda x, _: equalized(x),
    lambda x, _: posterized(x, 4),
    _rotate,
    lambda x, uniform: solarized(x, 1 - _strength(uniform)),
    lambda x, uniform: moved(x, [[1, 0.3 * _signed(uniform), 0], [0, 1, 0]]),
    lambda x, uniform: moved(x, [[1, 0, 0], [0.3 * _signed(uniform), 1, 0]]),
    lambda x, uniform: moved(x, [[1, 0, x.shape[3] / 3 * _signed(uniform)], [0, 1, 0]]),
    lambda x, uniform: moved(x, [[1, 0, 0], [0, 1, x.shape[2] / 3 * _signed(uniform)]]),
)
