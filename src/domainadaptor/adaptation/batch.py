"""Checks of what a user calls a batch of images, before anything learns from it."""

from collections.abc import Iterable

import torch
from torch import Tensor

from domainadaptor.errors import BadBatch


def checked_batch(images: object, weights: Iterable[Tensor]) -> Tensor:
    """The images as an ordinary tensor that fits the network's weights and has only finite values.

    Raises:
        BadBatch: It is not a batch of floating-point images on the network's device and in its precision, or some
            images hold NaN or infinite values.
    """
    if not isinstance(images, Tensor):
        raise BadBatch(
            f"expected a tensor of images, got a {type(images).__name__}; "
            "use torch.from_numpy(array), torch.stack(list) or batch['pixel_values']"
        )
    if not images.is_floating_point():
        raise BadBatch(
            f"expected normalized floating-point images, got {images.dtype}; convert and normalize them first"
        )
    if images.ndim < 2:
        raise BadBatch(f"expected a batch of shape (N, ...), got {tuple(images.shape)}; add a batch dimension")
    _check_fit(images, [weight for weight in weights if weight.is_floating_point()])
    # Tensors made in inference mode cannot take part in a backward pass.
    images = images.clone() if images.is_inference() else images.detach()
    # A sum is finite only if its parts are, and one pass is cheap; a sum that overflows is looked at more closely.
    if not torch.isfinite(images.sum()):
        finite = torch.isfinite(images).flatten(1).all(1)
        if not bool(finite.all()):
            raise BadBatch(
                f"NaN or infinite values in {int((~finite).sum())} of {len(images)} images, at positions "
                f"{_listed((~finite).nonzero().flatten().tolist())}; remove or repair them"
            )
    return images


def check_same_size(held: Tensor, images: Tensor) -> None:
    """Refuses images that cannot stand in one batch with one that is remembered.

    Raises:
        BadBatch: They have another shape.
    """
    if held.shape != images.shape[1:]:
        raise BadBatch(
            f"expected images of shape {tuple(held.shape)}, as the remembered ones are, got {tuple(images.shape[1:])}; "
            "resize them, or call adaptor.reset() first"
        )


def _check_fit(images: Tensor, weights: list[Tensor]) -> None:
    devices = {weight.device for weight in weights}
    if devices and images.device not in devices:
        raise BadBatch(f"the images are on {images.device}, the network is on {_words(devices)}; move one with .to()")
    dtypes = {weight.dtype for weight in weights}
    if dtypes and images.dtype not in dtypes and not torch.is_autocast_enabled(images.device.type):
        raise BadBatch(f"the images are {images.dtype}, the network is {_words(dtypes)}; convert one with .to()")


def _words(values: Iterable[object]) -> str:
    return " and ".join(sorted(map(str, values)))


def _listed(positions: list[int]) -> str:
    return ", ".join(map(str, positions[:10])) + (", …" if len(positions) > 10 else "")
