"""Random views of a batch: a flip and a resized crop, drawn for each image on its own."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from domainadaptor.errors import BadBatch

_AREA = (0.8, 1.0)
_ASPECT = (3 / 4, 4 / 3)
_TRIES = 10  # as torchvision's RandomResizedCrop, which then takes the whole image


def random_views(images: Tensor, count: int, generator: torch.Generator, area: tuple[float, float] = _AREA) -> Tensor:
    """`count` views of each image, (count * N, C, H, W): first one view of every image, then the next.

    Args:
        images: (N, C, H, W).
        count: How many views.
        generator: Of all that is random.
        area: The least and the largest share of an image that a crop keeps.
    """
    if images.ndim != 4:
        raise BadBatch(f"views are crops of images of shape (N, C, H, W), got {tuple(images.shape)}; use another loss")
    size = images.shape[-2:]
    memory = torch.channels_last if images.is_contiguous(memory_format=torch.channels_last) else torch.contiguous_format
    views = torch.empty(
        (count * len(images), *images.shape[1:]), dtype=images.dtype, device=images.device, memory_format=memory
    )
    for view, image in zip(views, (image for _ in range(count) for image in images), strict=True):
        view.copy_(_view(image, size, generator, area))
    return views


def _view(image: Tensor, size: torch.Size, generator: torch.Generator, share: tuple[float, float]) -> Tensor:
    flip = torch.rand((), generator=generator, device="cpu").item() < 0.5
    top, left, height, width = _crop_box(size[0], size[1], generator, share)
    crop = image[:, top : top + height, left : left + width].unsqueeze(0)
    crop = crop.contiguous(memory_format=torch.channels_last)  # which is faster, to the same bits
    view = F.interpolate(crop, size=size, mode="bilinear", align_corners=False).squeeze(0)
    return view.flip(-1) if flip else view


def _crop_box(
    height: int, width: int, generator: torch.Generator, share: tuple[float, float] = _AREA
) -> tuple[int, int, int, int]:
    """Top, left, height and width of a box of random area, aspect and place."""
    for _ in range(_TRIES):
        u, v, row, column = torch.rand(4, generator=generator, dtype=torch.float64, device="cpu").tolist()
        area = height * width * (share[0] + u * (share[1] - share[0]))
        low, high = math.log(_ASPECT[0]), math.log(_ASPECT[1])
        aspect = math.exp(low + v * (high - low))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return int(row * (height - h + 1)), int(column * (width - w + 1)), h, w
    return 0, 0, height, width
