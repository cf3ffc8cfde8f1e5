"""Rotation: by which quarter turn an image was rotated. Gidaris et al., ICLR 2018; Sun et al., ICML 2020."""

import torch
from torch import Tensor, nn

from domainadaptor.errors import BadBatch
from domainadaptor.tasks import Task

__all__ = ["rotation"]


class Rotation(Task):
    """Each image is turned by 0, 90, 180 or 270 degrees, drawn for itself; a linear head tells which."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.head = nn.Linear(width, 4, bias=False)

    def examples(self, images: Tensor, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        """Turned images, and the number of quarter turns."""
        turns = torch.randint(4, (len(images),), generator=draw, device="cpu")
        return rotated(images, turns), turns.to(images.device)

    def forward(self, features: Tensor) -> Tensor:
        """Logits of the four turns."""
        return self.head(features)  # type: ignore[no-any-return]


def rotated(images: Tensor, turns: Tensor) -> Tensor:
    """Each image by its own number of quarter turns.

    Raises:
        BadBatch: The images are not square, so that a turned one would have another shape.
    """
    if images.ndim != 4 or images.shape[2] != images.shape[3]:
        raise BadBatch(f"rotation needs square images of shape (N, C, S, S), got {tuple(images.shape)}; crop them")
    result = images.clone()
    for turn in (1, 2, 3):
        chosen = (turns == turn).to(images.device)
        result[chosen] = torch.rot90(images[chosen], turn, dims=(2, 3))
    return result


def rotation(width: int) -> Task:
    """By which quarter turn an image was rotated."""
    return Rotation(width)
