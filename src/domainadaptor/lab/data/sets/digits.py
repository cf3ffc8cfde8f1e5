"""The demo's digits as a data set: scikit-learn's 1,797 handwritten ones in four styles."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image

from domainadaptor.lab.data.digits import CLASSES, STYLES, load_digits, render
from domainadaptor.lab.data.domains import Domain, DomainDataset, Example

__all__ = ["digits"]


@dataclass(frozen=True)
class _DrawnReader:
    style: str

    def __call__(self, name: str) -> Image.Image:
        """The digit of that number."""
        return Image.fromarray(_drawn(self.style)[int(name)])

    def check(self, name: str) -> None:
        """Nothing to look at: it is drawn, not read."""

    def stamp(self, name: str) -> str:
        """Always the same: the digits and their styles are fixed."""
        return self.style

    def mark(self, name: str) -> str:
        """Always the same."""
        return self.style


def digits(root: Path | None = None, *, seed: int = 0) -> DomainDataset:
    """Real handwritten digits in four styles; needs no files, but scikit-learn.

    The digits that are trained on and those kept for validation and test are the demo's; `seed` changes nothing.
    """
    training, testing = load_digits()
    labels = [*training.labels.tolist(), *testing.labels.tolist()]
    first = len(training.labels)
    examples = tuple(Example(f"{at:04d}", label, "train" if at < first else "val") for at, label in enumerate(labels))
    # Tested on digits that no style was trained with: the same ones, drawn otherwise, would be no test.
    domains = {style: Domain(style, examples, _DrawnReader(style), tested="val") for style in STYLES}
    return DomainDataset("digits", CLASSES, domains, "the demo's: 1,197 digits to train on, 600 others")


@lru_cache(maxsize=len(STYLES))
def _drawn(style: str) -> np.ndarray:
    """All digits, (1797, side, side, 3), training ones first."""
    parts = [render(part.ink, style) for part in load_digits()]
    pixels = np.concatenate([part.numpy() for part in parts])
    drawn: np.ndarray = (pixels.transpose(0, 2, 3, 1) * 255).round().astype(np.uint8)
    return drawn
