"""Predict everything that a loader yields."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from domainadaptor.errors import BadBatch


def predict(adaptor: Callable[[Tensor], Tensor], loader: Iterable[Any]) -> Tensor:
    """Return the logits of all images, (N, K) on the CPU, in the loader's order. Labels are ignored.

    Args:
        adaptor: An adaptor, or any other function from images to logits.
        loader: Yields batches of images, tuples that start with them, or dicts with "pixel_values" or "image(s)".
    """
    weight = next(adaptor.parameters(), None) if isinstance(adaptor, nn.Module) else None
    logits = []
    for number, batch in enumerate(loader):
        images = images_of(batch, number)
        logits.append(adaptor(images if weight is None else images.to(weight.device)).detach().cpu())
    return torch.cat(logits) if logits else torch.empty(0, 0)


def images_of(batch: object, number: int) -> Tensor:
    """Return the images in what a loader yields, or raise BadBatch."""
    if isinstance(batch, Mapping):
        batch = next((batch[key] for key in ("pixel_values", "images", "image") if key in batch), batch)
    elif isinstance(batch, (tuple, list)) and batch:
        batch = batch[0]
    if not isinstance(batch, Tensor):
        raise BadBatch(
            f"Expected batch {number} of the loader to be images, (images, labels) or a dict with 'pixel_values', got "
            f"a {type(batch).__name__}."
        )
    return batch
