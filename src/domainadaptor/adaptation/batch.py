"""Batches of images: what a loader yields, and the checks before anything learns from it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
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
    batches = (images_of(batch, number) for number, batch in enumerate(loader))
    logits = [adaptor(x if weight is None else x.to(weight.device)).detach().cpu() for x in batches]
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


def given_batches(images: Iterable[Any], size: int) -> Iterator[Tensor]:
    """Yield the batches of an option: a tensor, which is split, or what a loader yields. Empty ones are left out."""
    for number, batch in enumerate(images.split(size) if isinstance(images, Tensor) else images):
        if len(found := images_of(batch, number)) > 0:
            yield found


def fitted_batch(images: Tensor, network: nn.Module) -> Tensor:
    """Return images on the device and in the precision of a network, checked."""
    weights = [p for p in network.parameters() if p.is_floating_point()]
    return checked_batch(images.to(weights[0]) if weights and images.is_floating_point() else images, weights)


def checked_batch(images: object, weights: Iterable[Tensor]) -> Tensor:
    """Return the images as an ordinary tensor, or raise BadBatch if they do not fit the weights or are not finite."""
    if not isinstance(images, Tensor):
        raise BadBatch(
            f"Expected a tensor of images, got a {type(images).__name__}. "
            "Use torch.from_numpy(array), torch.stack(list) or batch['pixel_values']."
        )
    if not images.is_floating_point():
        raise BadBatch(
            f"Expected normalized floating-point images, got {images.dtype}. Convert and normalize them first."
        )
    if images.ndim < 2:
        raise BadBatch(f"Expected a batch of shape (N, ...), got {tuple(images.shape)}. Add a batch dimension.")
    _check_fit(images, [weight for weight in weights if weight.is_floating_point()])
    # Inference tensors cannot take part in a backward pass.
    images = images.clone() if images.is_inference() else images.detach()
    # A finite sum means finite values and takes one fast pass. A sum that is not finite may just have overflowed.
    if not torch.isfinite(images.sum()):
        finite = torch.isfinite(images).flatten(1).all(1)
        if not bool(finite.all()):
            at = (~finite).nonzero().flatten().tolist()
            positions = ", ".join(map(str, at[:10])) + (", ..." if len(at) > 10 else "")
            raise BadBatch(
                f"NaN or infinite values in {len(at)} of {len(images)} images, at positions {positions}. "
                "Remove or repair them."
            )
    return images


@contextmanager
def hint_at_single_image(images: Tensor) -> Iterator[None]:
    """Raise BadBatch if a network fails on what may be one image."""
    try:
        yield
    except Exception as error:
        if images.ndim != 3:
            raise
        raise BadBatch(
            f"The network cannot take a batch of shape {tuple(images.shape)}. One image? Pass image[None]."
        ) from error


def check_same_size(stored: Tensor, images: Tensor) -> None:
    """Raise BadBatch if images cannot be stacked with a stored one."""
    if stored.shape != images.shape[1:]:
        raise BadBatch(
            f"Expected images of shape {tuple(stored.shape)} like the stored ones, got {tuple(images.shape[1:])}. "
            "Resize them, or call adaptor.reset() first."
        )


def _check_fit(images: Tensor, weights: list[Tensor]) -> None:
    devices = {weight.device for weight in weights}
    if devices and images.device not in devices:
        raise BadBatch(f"The images are on {images.device}, the network is on {_join(devices)}. Move one with .to().")
    dtypes = {weight.dtype for weight in weights}
    if dtypes and images.dtype not in dtypes and not torch.is_autocast_enabled(images.device.type):
        raise BadBatch(f"The images are {images.dtype}, the network is {_join(dtypes)}. Convert one with .to().")


def _join(values: Iterable[object]) -> str:
    return " and ".join(sorted(map(str, values)))
