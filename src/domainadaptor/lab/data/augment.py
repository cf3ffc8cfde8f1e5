"""The paper's training augmentation for a whole batch at once: random resized crop, flip, color jitter."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from domainadaptor.augmentation.cotta import grayscale

_SCALE = (0.8, 1.0)  # share of the area that a crop keeps
_RATIO = (3 / 4, 4 / 3)
_TRIES = 10
_JITTER = 0.4  # of brightness, contrast, saturation and hue


def before_cropping(size: int) -> int:
    """Return the side of training images before they are cropped to the input size: 256 for 224."""
    return round(size * 8 / 7)


def augment(images: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """Crop to 0.8 to 1 of the area, flip half of the images and jitter colors by 0.4, independently per image.

    Images are (N, 3, H, W) between 0 and 1; the result has the side `size`.
    """
    return jitter(crop_and_flip(images, size, generator), generator)


def crop_and_flip(images: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """Return random resized crops, half of them mirrored, (N, 3, size, size)."""
    boxes = crop_boxes(len(images), images.shape[-2], images.shape[-1], generator)
    flips = torch.rand(len(images), generator=generator) < 0.5
    return cropped(images, boxes, flips, size)


def crop_boxes(count: int, height: int, width: int, generator: torch.Generator) -> Tensor:
    """Draw top, left, height and width of crops, (N, 4), as torchvision does but without rounding to pixels.

    A crop that does not fit is drawn again, up to ten times; then the whole image is taken.
    """
    area = height * width * torch.empty(_TRIES, count).uniform_(*_SCALE, generator=generator)
    ratio = torch.empty(_TRIES, count).uniform_(math.log(_RATIO[0]), math.log(_RATIO[1]), generator=generator).exp()
    wide, high = (area * ratio).sqrt(), (area / ratio).sqrt()
    fits = (wide <= width) & (high <= height)
    first = fits.int().argmax(0, keepdim=True)
    found = fits.any(0)
    wide = torch.where(found, wide.gather(0, first)[0], torch.tensor(float(width)))
    high = torch.where(found, high.gather(0, first)[0], torch.tensor(float(height)))
    top = torch.rand(count, generator=generator) * (height - high)
    left = torch.rand(count, generator=generator) * (width - wide)
    return torch.stack([top, left, high, wide], dim=1)


def cropped(images: Tensor, boxes: Tensor, flips: Tensor, size: int) -> Tensor:
    """Return the boxes of the images, resized bilinearly; those with `flips` are mirrored."""
    height, width = images.shape[-2:]
    top, left, high, wide = boxes.to(images).unbind(1)
    mirror = 1 - 2 * flips.to(images)
    zero = torch.zeros_like(top)
    # In the coordinates of grid_sample, -1 and 1 are the outer edges of the image.
    across = torch.stack([wide / width * mirror, zero, (2 * left + wide) / width - 1], dim=1)
    down = torch.stack([zero, high / height, (2 * top + high) / height - 1], dim=1)
    grid = F.affine_grid(torch.stack([across, down], dim=1), [len(images), 3, size, size], align_corners=False)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)


def jitter(images: Tensor, generator: torch.Generator) -> Tensor:
    """Change brightness, contrast, saturation and hue by a factor per image, in one random order per batch."""
    low, high = 1 - _JITTER, 1 + _JITTER
    factors = torch.empty(3, len(images)).uniform_(low, high, generator=generator).to(images.device)
    turn = torch.empty(len(images)).uniform_(-_JITTER, _JITTER, generator=generator).to(images.device)
    steps = (adjust_brightness, adjust_contrast, adjust_saturation)
    for step in torch.randperm(4, generator=generator).tolist():
        images = adjust_hue(images, turn) if step == 3 else steps[step](images, factors[step])
    return images


def adjust_brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with black."""
    return _blend(images, torch.zeros_like(images), factor)


def adjust_contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the mean gray value of the image."""
    return _blend(images, grayscale(images).mean((2, 3), keepdim=True).expand_as(images), factor)


def adjust_saturation(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the gray image."""
    return _blend(images, grayscale(images).expand_as(images), factor)


def adjust_hue(images: Tensor, turn: Tensor) -> Tensor:
    """Rotate the hue by a share of a full turn."""
    high, low = images.amax(1), images.amin(1)
    span = high - low
    safe = torch.where(span == 0, torch.ones_like(span), span)
    red, green, blue = images.unbind(1)
    hue = torch.where(
        high == red,
        (green - blue) / safe,
        torch.where(high == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    hue = torch.where(span == 0, torch.zeros_like(hue), hue) + 6 * turn.view(-1, 1, 1)
    # Each channel is at its maximum within a sixth of a turn on either side of its hue.
    channels = [
        high - span * (2 - ((hue - peak + 3).remainder(6) - 3).abs()).neg().add(1).clamp(0, 1) for peak in (0, 2, 4)
    ]
    return torch.stack(channels, dim=1)


def _blend(images: Tensor, other: Tensor, factor: Tensor) -> Tensor:
    weight = factor.view(-1, 1, 1, 1)
    return (weight * images + (1 - weight) * other).clamp(0, 1)
