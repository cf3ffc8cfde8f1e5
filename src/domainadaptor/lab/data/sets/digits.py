"""Handwritten digits in four styles as four domains: scikit-learn's 1,797 digits, which need no download."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from domainadaptor.lab.data.domains import Domain, DomainDataset, Example, Reader
from domainadaptor.lab.data.sets import SplitSeed

__all__ = ["digits"]

SIDE = 20
CLASSES = tuple(str(digit) for digit in range(10))


class Digits(NamedTuple):
    """Ink of each digit between 0 and 1, and its label, in a fixed shuffled order."""

    ink: Tensor  # (N, 1, SIDE, SIDE)
    labels: Tensor  # (N,)


@dataclass(frozen=True)
class _DrawnReader(Reader):
    style: str

    def __call__(self, name: str) -> Image.Image:
        return Image.fromarray(_drawn(self.style)[int(name)])

    def stamp(self, name: str) -> str:
        return self.style


def digits(root: Path | None = None, *, seed: SplitSeed = 0) -> DomainDataset:
    """Real handwritten digits in four styles; needs no files.

    Training, validation and test digits are those of the demo; `seed` has no effect.
    """
    training, testing = load_digits()
    labels = [*training.labels.tolist(), *testing.labels.tolist()]
    first = len(training.labels)
    examples = tuple(Example(f"{at:04d}", label, "train" if at < first else "val") for at, label in enumerate(labels))
    # Tested on digits that no style was trained with: the same digits in another style would be no test.
    domains = {style: Domain(style, examples, _DrawnReader(style), tested="val") for style in STYLES}
    return DomainDataset("digits", CLASSES, domains, "the demo's: 1,197 digits to train on, 600 others")


def load_digits() -> tuple[Digits, Digits]:
    """Return 1,197 digits to train on and 600 others to test on."""
    from sklearn import datasets

    raw = datasets.load_digits()
    order = torch.randperm(len(raw.target), generator=torch.Generator().manual_seed(0))
    ink = torch.from_numpy(np.asarray(raw.images, dtype=np.float32) / 16).unsqueeze(1)[order]
    ink = F.interpolate(ink, size=(SIDE - 4, SIDE - 4), mode="bicubic").clamp(0, 1)
    ink = F.pad(ink, (2, 2, 2, 2))
    labels = torch.from_numpy(np.asarray(raw.target)).long()[order]
    return Digits(ink[:-600], labels[:-600]), Digits(ink[-600:], labels[-600:])


def _chalk(ink: Tensor, generator: torch.Generator) -> Tensor:
    """White on a dark board, with the grain of chalk and dust."""
    grain = 0.6 + 0.4 * torch.rand(ink.shape, generator=generator)
    board = 0.12 + 0.05 * torch.randn(ink.shape, generator=generator)
    tint = torch.tensor([0.8, 1.0, 0.85]).view(3, 1, 1)
    return (board * tint + (ink * grain) * 0.8).clamp(0, 1)


def _pen(ink: Tensor, generator: torch.Generator) -> Tensor:
    """Dark blue on white paper, sharp."""
    sharp = ((ink - 0.35) * 4).clamp(0, 1)
    blue = torch.tensor([0.9, 0.8, 0.35]).view(3, 1, 1)
    paper = 0.95 + 0.02 * torch.randn(ink.shape, generator=generator)
    return (paper - sharp * blue).clamp(0, 1)


def _photo(ink: Tensor, generator: torch.Generator) -> Tensor:
    """Brown on colored paper, photographed in poor light: faint, blurred, unevenly lit, noisy."""
    n = len(ink)
    soft = F.avg_pool2d(ink, 3, stride=1, padding=1)
    corners = 0.35 + 0.5 * torch.rand((n, 1, 2, 2), generator=generator)
    light = F.interpolate(corners, size=ink.shape[-2:], mode="bilinear", align_corners=True)
    paper = 0.6 + 0.4 * torch.rand((n, 3, 1, 1), generator=generator)
    image = light * paper * (1 - 0.55 * soft)
    return (image + 0.04 * torch.randn(image.shape, generator=generator)).clamp(0, 1)


def _neon(ink: Tensor, generator: torch.Generator) -> Tensor:
    """Only a glowing outline in a random color, over a colored haze."""
    n = len(ink)
    right, down = F.pad(ink, (0, 1, 0, 0)).diff(dim=-1), F.pad(ink, (0, 0, 0, 1)).diff(dim=-2)
    edge = (2.2 * (right.square() + down.square()).sqrt()).clamp(0, 1)
    color = 0.5 + 0.5 * torch.rand((n, 3, 1, 1), generator=generator)
    haze = F.interpolate(0.45 * torch.rand((n, 3, 4, 4), generator=generator), size=ink.shape[-2:], mode="bilinear")
    return (haze * (1 - edge) + edge * color).clamp(0, 1)


STYLES: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    "chalk": _chalk,
    "pen": _pen,
    "photo": _photo,
    "neon": _neon,
}


def render(ink: Tensor, style: str) -> Tensor:
    """Draw digits in a style, (N, 3, SIDE, SIDE) between 0 and 1; always the same for the same ink."""
    seed = sorted(STYLES).index(style)
    return STYLES[style](ink, torch.Generator().manual_seed(seed))


@lru_cache(maxsize=len(STYLES))
def _drawn(style: str) -> np.ndarray:
    """Return all digits as bytes, (1797, SIDE, SIDE, 3), training digits first."""
    pixels = np.concatenate([render(part.ink, style).numpy() for part in load_digits()])
    drawn: np.ndarray = (pixels.transpose(0, 2, 3, 1) * 255).round().astype(np.uint8)
    return drawn
