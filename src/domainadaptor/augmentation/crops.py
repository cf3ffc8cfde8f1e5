"""Geometric augmentations of batches: random resized crops with flips, and affine transforms."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from domainadaptor.errors import BadBatch

_AREA = (0.8, 1.0)
_ASPECT = (3 / 4, 4 / 3)
_TRIES = 10  # as in torchvision's RandomResizedCrop, which then takes the whole image


def random_views(images: Tensor, count: int, generator: torch.Generator, area: tuple[float, float] = _AREA) -> Tensor:
    """Return `count` views of each image, (count * N, C, H, W): one view of every image, then the next.

    Args:
        images: (N, C, H, W).
        count: Number of views.
        generator: Random generator, on the CPU.
        area: Smallest and largest fraction of an image that a crop keeps.

    Example:
        >>> da.random_views(images, 3, torch.Generator().manual_seed(0)).shape
        torch.Size([24, 3, 16, 16])
    """
    if images.ndim != 4:
        raise BadBatch(f"Expected images of shape (N, C, H, W) to crop, got {tuple(images.shape)}. Use another loss.")
    views = torch.empty(
        (count * len(images), *images.shape[1:]),
        dtype=images.dtype,
        device=images.device,
        memory_format=memory_format(images),
    )
    for view, image in zip(views, (image for _ in range(count) for image in images), strict=True):
        view.copy_(_view(image, generator, area))
    return views


def zoomed(images: Tensor, margin: float) -> Tensor:
    """Return images (N, C, H, W) at their own size, without `margin` of each side, or with as much more if negative."""
    height, width = images.shape[-2:]
    rows, columns = (round(margin * side) for side in (height, width))
    if rows == columns == 0:
        return images
    framed = F.pad(images, (-columns, -columns, -rows, -rows), mode="reflect" if margin < 0 else "constant")
    return F.interpolate(framed, size=(height, width), mode="bilinear", align_corners=False)


def rearranged(images: Tensor, rows: int, columns: int, orders: Tensor) -> Tensor:
    """Cut images (N, C, H, W) into equal patches and put patch orders[:, i] at position i."""
    count, channels, height, width = images.shape
    h, w = height // rows, width // columns
    x = images.reshape(count, channels, rows, h, columns, w).permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
    x = x[torch.arange(count, device=x.device)[:, None], orders.to(x.device)]
    out: Tensor = x.unflatten(1, (rows, columns)).permute(0, 3, 1, 4, 2, 5).reshape(images.shape)
    return out


def memory_format(images: Tensor) -> torch.memory_format:
    """Return the memory format of images, channels last or contiguous."""
    last = images.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if last else torch.contiguous_format


def affine(
    pixels: Tensor,
    matrix: list[list[float]],
    shift: tuple[float, float] = (0.0, 0.0),
    *,
    margin: int = 0,
    padding: str = "zeros",
) -> Tensor:
    """Sample each pixel from the point that the matrix gives, relative to the center and in pixels.

    Args:
        pixels: (N, C, H, W).
        matrix: Rows (a, b, c): x' = a * x + b * y + c, and the same for y'.
        shift: Move the images right and down by this much first.
        margin: Pixels to add on each side of the result.
        padding: What lies outside of the images, "zeros" or "border".
    """
    height, width = pixels.shape[-2:]
    x = torch.arange(-margin, width + margin, device=pixels.device, dtype=pixels.dtype) - (width - 1) / 2
    y = torch.arange(-margin, height + margin, device=pixels.device, dtype=pixels.dtype) - (height - 1) / 2
    x, y = x - shift[0], (y - shift[1]).unsqueeze(1)
    across, down = (a * x + b * y + c for a, b, c in matrix)
    grid = torch.stack([across * 2 / width, down * 2 / height], dim=-1)
    return F.grid_sample(pixels, grid.expand(len(pixels), -1, -1, -1), padding_mode=padding, align_corners=False)


def _view(image: Tensor, generator: torch.Generator, area: tuple[float, float]) -> Tensor:
    flip = torch.rand((), generator=generator, device="cpu").item() < 0.5
    top, left, height, width = _crop_box(image.shape[-2], image.shape[-1], generator, area)
    crop = image[:, top : top + height, left : left + width].unsqueeze(0)
    crop = crop.contiguous(memory_format=torch.channels_last)  # faster, with identical results
    view = F.interpolate(crop, size=image.shape[-2:], mode="bilinear", align_corners=False).squeeze(0)
    return view.flip(-1) if flip else view


def _crop_box(
    height: int, width: int, generator: torch.Generator, share: tuple[float, float] = _AREA
) -> tuple[int, int, int, int]:
    """Return top, left, height and width of a box of random area, aspect ratio and position."""
    for _ in range(_TRIES):
        u, v, row, column = torch.rand(4, generator=generator, dtype=torch.float64, device="cpu").tolist()
        area = height * width * (share[0] + u * (share[1] - share[0]))
        low, high = math.log(_ASPECT[0]), math.log(_ASPECT[1])
        aspect = math.exp(low + v * (high - low))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return int(row * (height - h + 1)), int(column * (width - w + 1)), h, w
    return 0, 0, height, width
