"""Predictions for everything that a loader yields."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from domainadaptor.errors import BadBatch


def predict(adaptor: Callable[[Tensor], Tensor], loader: Iterable[Any]) -> Tensor:
    """The logits of every image, (N, K) on the CPU, in the loader's order; labels are ignored.

    Args:
        adaptor: An adaptor, or anything else that turns images into logits.
        loader: Yields batches of images, or tuples that begin with them, or dicts with "pixel_values" or "image(s)".
    """
    weight = next(adaptor.parameters(), None) if isinstance(adaptor, nn.Module) else None
    answers = []
    for number, batch in enumerate(loader):
        images = images_of(batch, number)
        answers.append(adaptor(images if weight is None else images.to(weight.device)).detach().cpu())
    return torch.cat(answers) if answers else torch.empty(0, 0)


def images_of(batch: object, number: int) -> Tensor:
    """The images in what a loader yields.

    Raises:
        BadBatch: There are none.
    """
    if isinstance(batch, Mapping):
        batch = next((batch[key] for key in ("pixel_values", "images", "image") if key in batch), batch)
    elif isinstance(batch, (tuple, list)) and batch:
        batch = batch[0]
    if not isinstance(batch, Tensor):
        raise BadBatch(
            f"batch {number} of the loader: expected images, or (images, labels), or a dict with 'pixel_values', "
            f"got a {type(batch).__name__}"
        )
    return batch
