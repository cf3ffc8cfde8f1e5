"""Handwritten digits in four styles, as four domains: scikit-learn's 1,797 real ones, for the demo."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from domainadaptor.errors import BadFile

SIDE = 20
CLASSES = tuple(str(digit) for digit in range(10))


class Digits(NamedTuple):
    """Ink of each digit between 0 and 1, and which digit it is, in a fixed shuffled order."""

    ink: Tensor  # (N, 1, SIDE, SIDE)
    labels: Tensor  # (N,)


def load_digits() -> tuple[Digits, Digits]:
    """The digits to train on, 1,197, and those to test on, 600; no digit is in both.

    Raises:
        BadFile: scikit-learn, which carries them, is not installed.
    """
    try:
        from sklearn import datasets
    except ImportError as error:
        raise BadFile("the digits come with scikit-learn: pip install 'domainadaptor[demo]'") from error
    raw = datasets.load_digits()
    order = torch.randperm(len(raw.target), generator=torch.Generator().manual_seed(0))
    ink = torch.from_numpy(np.asarray(raw.images, dtype=np.float32) / 16).unsqueeze(1)[order]
    ink = F.interpolate(ink, size=(SIDE - 4, SIDE - 4), mode="bicubic").clamp(0, 1)
    ink = F.pad(ink, (2, 2, 2, 2))
    labels = torch.from_numpy(np.asarray(raw.target)).long()[order]
    return Digits(ink[:-600], labels[:-600]), Digits(ink[-600:], labels[-600:])


def chalk(ink: Tensor, generator: torch.Generator) -> Tensor:
    """White on a dark board, with the grain of chalk and dust."""
    grain = 0.6 + 0.4 * torch.rand(ink.shape, generator=generator)
    board = 0.12 + 0.05 * torch.randn(ink.shape, generator=generator)
    tint = torch.tensor([0.8, 1.0, 0.85]).view(3, 1, 1)
    return (board * tint + (ink * grain) * 0.8).clamp(0, 1)


def pen(ink: Tensor, generator: torch.Generator) -> Tensor:
    """Dark blue on white paper, crisp."""
    sharp = ((ink - 0.35) * 4).clamp(0, 1)
    blue = torch.tensor([0.9, 0.8, 0.35]).view(3, 1, 1)
    paper = 0.95 + 0.02 * torch.randn(ink.shape, generator=generator)
    return (paper - sharp * blue).clamp(0, 1)


def photo(ink: Tensor, generator: torch.Generator) -> Tensor:
    """Brown on colored paper, photographed in poor light: faint, blurred, unevenly lit, noisy."""
    n = len(ink)
    soft = F.avg_pool2d(ink, 3, stride=1, padding=1)
    corners = 0.35 + 0.5 * torch.rand((n, 1, 2, 2), generator=generator)
    light = F.interpolate(corners, size=ink.shape[-2:], mode="bilinear", align_corners=True)
    paper = 0.6 + 0.4 * torch.rand((n, 3, 1, 1), generator=generator)
    image = light * paper * (1 - 0.55 * soft)
    return (image + 0.04 * torch.randn(image.shape, generator=generator)).clamp(0, 1)


def neon(ink: Tensor, generator: torch.Generator) -> Tensor:
    """Only the glowing outline, in a color of its own, over a colored haze."""
    n = len(ink)
    right, down = F.pad(ink, (0, 1, 0, 0)).diff(dim=-1), F.pad(ink, (0, 0, 0, 1)).diff(dim=-2)
    edge = (2.2 * (right.square() + down.square()).sqrt()).clamp(0, 1)
    color = 0.5 + 0.5 * torch.rand((n, 3, 1, 1), generator=generator)
    haze = F.interpolate(0.45 * torch.rand((n, 3, 4, 4), generator=generator), size=ink.shape[-2:], mode="bilinear")
    return (haze * (1 - edge) + edge * color).clamp(0, 1)


STYLES: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    "chalk": chalk,
    "pen": pen,
    "photo": photo,
    "neon": neon,
}


def render(ink: Tensor, style: str) -> Tensor:
    """Digits drawn in a style, (N, 3, SIDE, SIDE) between 0 and 1; the same every time."""
    seed = sorted(STYLES).index(style)
    return STYLES[style](ink, torch.Generator().manual_seed(seed))
