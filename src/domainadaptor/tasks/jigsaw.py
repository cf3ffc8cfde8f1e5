"""Jigsaw: in which order the nine tiles of an image were laid. Carlucci et al., CVPR 2019 (JiGen)."""

from functools import lru_cache
from itertools import permutations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from domainadaptor.errors import BadBatch
from domainadaptor.tasks import Task

__all__ = ["jigsaw"]

_TILES = 3  # on a side
ORDERS = 31  # besides the image as it is


class Jigsaw(Task):
    """Nine tiles in one of 32 orders; a head with two hidden layers tells which. Order 0 is the image as it is."""

    weight = 0.1

    def __init__(self, width: int) -> None:
        super().__init__()
        hidden = [nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
        self.head = nn.Sequential(*hidden, nn.Linear(width, ORDERS + 1))

    def examples(self, images: Tensor, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        """Shuffled images, and the number of the order."""
        orders = torch.randint(ORDERS + 1, (len(images),), generator=draw, device="cpu")
        return shuffled(images, tile_orders()[orders]), orders.to(images.device)

    def forward(self, features: Tensor) -> Tensor:
        """Logits of the 32 orders."""
        return self.head(features)  # type: ignore[no-any-return]


def shuffled(images: Tensor, orders: Tensor) -> Tensor:
    """Images whose tile at place i is the tile orders[:, i]; far edges that do not divide by three are filled up.

    Raises:
        BadBatch: They are no images, or smaller than three pixels.
    """
    if images.ndim != 4:
        raise BadBatch(f"jigsaw needs images of shape (N, C, H, W), got {tuple(images.shape)}")
    n, channels, height, width = images.shape
    if min(height, width) < _TILES:
        raise BadBatch(f"jigsaw needs images of at least 3x3 pixels, got {height}x{width}")
    high, wide = height // _TILES, width // _TILES
    tiles = images[:, :, : high * _TILES, : wide * _TILES]
    tiles = tiles.reshape(n, channels, _TILES, high, _TILES, wide).permute(0, 2, 4, 1, 3, 5)
    tiles = tiles.reshape(n, _TILES**2, channels, high, wide)
    tiles = tiles[torch.arange(n, device=images.device)[:, None], orders.to(images.device)]
    tiles = tiles.reshape(n, _TILES, _TILES, channels, high, wide).permute(0, 3, 1, 4, 2, 5)
    tiles = tiles.reshape(n, channels, high * _TILES, wide * _TILES)
    # Networks for one size only would not take a smaller image.
    return F.pad(tiles, (0, width - wide * _TILES, 0, height - high * _TILES), mode="replicate")


@lru_cache(maxsize=1)
def tile_orders() -> Tensor:
    """Return the orders, (32, 9): the first leaves all tiles in place, each next one is far from those before it.

    "Far" is the number of tiles that lie elsewhere: first to the nearest order chosen so far, then on average.
    """
    everything = torch.tensor(list(permutations(range(_TILES**2))), dtype=torch.int8, device="cpu")
    chosen = [0]
    nearest = torch.full((len(everything),), _TILES**2, device="cpu")
    total = torch.zeros_like(nearest)
    while len(chosen) <= ORDERS:
        distance = (everything != everything[chosen[-1]]).sum(1)
        nearest = torch.minimum(nearest, distance)
        total += distance
        rank = nearest * (ORDERS + 1) * _TILES**2 + total
        chosen.append(int((rank == rank.max()).nonzero()[-1]))  # the last of equals
    return everything[chosen].long()


def jigsaw(width: int) -> Task:
    """In which order the nine tiles of an image were laid."""
    return Jigsaw(width)
