"""AugMix as MEMO uses it: a crop mixed with three chains of mild operations. Hendrycks et al., ICLR 2020.

Operations and strength are those of MEMO's authors (severity 1), on tensors instead of Pillow images. Angles and
distances are not rounded to whole degrees and pixels.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from domainadaptor.augmentation.crops import affine, random_views

_CHAINS = 3
_DEEPEST = 3  # operations in a chain
_LEAST = 0.1  # the strength of an operation is drawn from this to 1, of 10
_LEVELS = 255

_Uniform = Callable[[], float]


def augmix_views(pixels: Tensor, count: int, generator: torch.Generator, area: float) -> Tensor:
    """Return `count` views of each image, in the order of `random_views`. Pixels are from 0 to 1."""
    crops = random_views(pixels.clamp(0, 1), count, generator, (area, 1.0))

    def uniform() -> float:
        return float(torch.rand((), generator=generator, dtype=torch.float64, device="cpu"))

    return torch.cat([_mixed(crop, uniform) for crop in crops.split(1)])


def _mixed(crop: Tensor, uniform: _Uniform) -> Tensor:
    """Mix a crop with chains of operations on it, with weights from Dirichlet(1, 1, 1) and Beta(1, 1)."""
    shares = [-math.log(1 - uniform()) for _ in range(_CHAINS)]
    keep = uniform()
    total = torch.zeros_like(crop)
    for share in shares:
        chain = crop
        for _ in range(1 + int(_DEEPEST * uniform())):
            chain = OPERATIONS[int(len(OPERATIONS) * uniform())](chain, uniform)
        total = total + share / sum(shares) * chain
    return keep * crop + (1 - keep) * total


def _strength(uniform: _Uniform) -> float:
    return (_LEAST + (1 - _LEAST) * uniform()) / 10


def _signed(uniform: _Uniform) -> float:
    strength = _strength(uniform)
    return strength if uniform() < 0.5 else -strength


def autocontrast(pixels: Tensor) -> Tensor:
    """Stretch every channel to the range from 0 to 1."""
    low, high = pixels.amin((2, 3), keepdim=True), pixels.amax((2, 3), keepdim=True)
    span = high - low
    return torch.where(span > 0, (pixels - low) / torch.where(span > 0, span, 1.0), pixels)


def equalize(pixels: Tensor) -> Tensor:
    """Equalize the histogram of every channel, of 256 levels."""
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


def posterize(pixels: Tensor, bits: int) -> Tensor:
    """Keep only the highest bits of each level."""
    size = 1 << (8 - bits)
    coarse = ((pixels * _LEVELS).round() / size).floor() * size
    return coarse / _LEVELS


def solarize(pixels: Tensor, threshold: float) -> Tensor:
    """Invert pixels at or above the threshold."""
    return torch.where(pixels >= threshold, 1 - pixels, pixels)


def _rotate(x: Tensor, uniform: _Uniform) -> Tensor:
    angle = math.radians(30 * _signed(uniform))
    return affine(x, [[math.cos(angle), math.sin(angle), 0], [-math.sin(angle), math.cos(angle), 0]])


OPERATIONS: tuple[Callable[[Tensor, _Uniform], Tensor], ...] = (
    lambda x, _: autocontrast(x),
    lambda x, _: equalize(x),
    lambda x, _: posterize(x, 4),
    _rotate,
    lambda x, uniform: solarize(x, 1 - _strength(uniform)),
    lambda x, uniform: affine(x, [[1, 0.3 * _signed(uniform), 0], [0, 1, 0]]),
    lambda x, uniform: affine(x, [[1, 0, 0], [0.3 * _signed(uniform), 1, 0]]),
    lambda x, uniform: affine(x, [[1, 0, x.shape[3] / 3 * _signed(uniform)], [0, 1, 0]]),
    lambda x, uniform: affine(x, [[1, 0, 0], [0, 1, x.shape[2] / 3 * _signed(uniform)]]),
)
