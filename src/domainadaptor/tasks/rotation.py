"""Rotation: predict how far an image was rotated. Gidaris et al., ICLR 2018; Sun et al., ICML 2020."""

import torch
from torch import Tensor, nn

from domainadaptor.errors import BadBatch
from domainadaptor.tasks import Task

__all__ = ["Rotation"]


class Rotation(Task):
    """Predict whether each image is rotated by 0, 90, 180 or 270 degrees."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.head = nn.Linear(width, 4, bias=False)

    def examples(self, images: Tensor, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return rotated images and their numbers of quarter turns."""
        turns = torch.randint(4, (len(images),), generator=draw, device="cpu")
        return rotate(images, turns), turns.to(images.device)


def rotate(images: Tensor, turns: Tensor) -> Tensor:
    """Rotate each square image by its number of quarter turns."""
    if images.ndim != 4 or images.shape[2] != images.shape[3]:
        raise BadBatch(f"Rotation needs square images of shape (N, C, S, S), got {tuple(images.shape)}. Crop them.")
    result = images.clone()
    for turn in (1, 2, 3):
        chosen = (turns == turn).to(images.device)
        result[chosen] = torch.rot90(images[chosen], turn, dims=(2, 3))
    return result
