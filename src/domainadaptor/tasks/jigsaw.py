"""Jigsaw: predict the order of an image's nine tiles. Carlucci et al., CVPR 2019 (JiGen)."""

from functools import lru_cache
from itertools import permutations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from domainadaptor.augmentation.crops import rearranged
from domainadaptor.errors import BadBatch
from domainadaptor.tasks import Task

__all__ = ["Jigsaw"]

_TILES = 3  # per side
ORDERS = 31  # besides the original one


class Jigsaw(Task):
    """Predict which of 32 orders the tiles of an image are in; order 0 is the original."""

    weight = 0.1

    def __init__(self, width: int) -> None:
        super().__init__()
        hidden = [nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
        self.head = nn.Sequential(*hidden, nn.Linear(width, ORDERS + 1))

    def examples(self, images: Tensor, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return shuffled images and the index of each order."""
        orders = torch.randint(ORDERS + 1, (len(images),), generator=draw, device="cpu")
        return shuffle_tiles(images, tile_orders()[orders]), orders.to(images.device)


def shuffle_tiles(images: Tensor, orders: Tensor) -> Tensor:
    """Put tile orders[:, i] at position i. Pixels beyond a multiple of three are filled by replication."""
    if images.ndim != 4:
        raise BadBatch(f"Jigsaw needs images of shape (N, C, H, W), got {tuple(images.shape)}.")
    height, width = images.shape[2:]
    if min(height, width) < _TILES:
        raise BadBatch(f"Jigsaw needs images of at least 3x3 pixels, got {height}x{width}.")
    high, wide = height // _TILES, width // _TILES
    tiles = rearranged(images[:, :, : high * _TILES, : wide * _TILES], _TILES, _TILES, orders)
    # Some networks accept one image size only.
    return F.pad(tiles, (0, width - wide * _TILES, 0, height - high * _TILES), mode="replicate")


@lru_cache(maxsize=1)
def tile_orders() -> Tensor:
    """Return the orders, (32, 9): the original, then each time the one farthest from all before.

    The distance is the number of tiles that differ: to the nearest order first, on average second.
    """
    with torch.device("cpu"), torch.inference_mode(False):
        every = torch.tensor(list(permutations(range(_TILES**2))), dtype=torch.uint8).T.contiguous()
        chosen = [0]
        nearest = torch.full((every.shape[1],), _TILES**2)
        total = torch.zeros_like(nearest)
        while len(chosen) <= ORDERS:
            distance = (every != every[:, chosen[-1:]]).sum(0)
            nearest = torch.minimum(nearest, distance)
            total += distance
            rank = nearest * _TILES**2 * (ORDERS + 1) + total
            chosen.append(int((rank == rank.max()).nonzero()[-1]))  # the last of equals
        return every[:, chosen].T.long()
