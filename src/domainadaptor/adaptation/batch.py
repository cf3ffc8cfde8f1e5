"""Batches of images: what a loader yields, and the checks before anything learns from it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from domainadaptor.adaptation.logits import finite
from domainadaptor.errors import AdaptationError, BadBatch, UnsupportedNetwork, listed


def predict(
    adaptor: Callable[[Tensor], Tensor],
    loader: Iterable[Any],
    *,
    progress: Callable[[int, Any], object] = lambda done, result: None,
) -> Tensor:
    """Return the logits of all images, (N, K) on the CPU, in the loader's order. Labels are ignored.

    Args:
        adaptor: An adaptor, or any other function from images to logits.
        loader: Yields batches of images, tuples that start with them, or dicts with "pixel_values" or "image(s)".
        progress: Called after each batch with the number of images done and the result, which has `warnings` and
            `note`; with the output, if the adaptor is another function.

    Example:
        >>> da.predict(da.adapt(network), images.split(4)).shape
        torch.Size([8, 5])
    """
    weight = next(adaptor.parameters(), None) if isinstance(adaptor, nn.Module) else None
    logits, done = [], 0
    for number, batch in enumerate(loader):
        images = images_of(batch, number)
        result = getattr(adaptor, "adapt", adaptor)(images if weight is None else images.to(weight.device))
        logits.append(getattr(result, "logits", result).detach().cpu())
        done += len(images)
        progress(done, result)
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
    if images.layout != torch.strided or images.is_nested:
        kind = "nested" if images.is_nested else images.layout
        raise BadBatch(f"Expected a dense tensor of images, got a {kind} one. Stack or convert the images first.")
    if images.ndim < 2:
        raise BadBatch(f"Expected a batch of shape (N, ...), got {tuple(images.shape)}. Add a batch dimension.")
    if 0 in images.shape[1:]:
        raise BadBatch(f"The images have no pixels: their shape is {tuple(images.shape[1:])}. Leave them out.")
    _check_fit(images, [weight for weight in weights if weight.is_floating_point()])
    # Inference tensors cannot take part in a backward pass.
    images = images.clone() if images.is_inference() else images.detach()
    # A finite sum means finite values and takes one fast pass. A sum that is not finite may just have overflowed.
    if not torch.isfinite(images.sum()):
        usable = torch.isfinite(images).flatten(1).all(1)
        if not bool(usable.all()):
            raise BadBatch(f"NaN or infinite values in {_rows(usable)}. Remove or repair them.")
    return images


def checked_answer(logits: Any, network: nn.Module) -> Any:
    """Return the source model's logits, or raise an error if they are not finite: there is nothing to fall back to."""
    if isinstance(logits, Tensor) and not finite(logits):
        if broken := [name for name, p in network.named_parameters() if not finite(p)]:
            raise UnsupportedNetwork(f"Some weights are not finite: {listed(broken)}. Load other weights.")
        usable = torch.isfinite(logits).flatten(1).all(1)
        raise BadBatch(
            f"The source model's own logits are not finite for {_rows(usable)}. Are these images normalized as in "
            "training?"
        )
    return logits


def _rows(usable: Tensor) -> str:
    """Return how many images are not usable, (N,), and which, for a message."""
    at = (~usable).nonzero().flatten().tolist()
    positions = ", ".join(map(str, at[:10])) + (", ..." if len(at) > 10 else "")
    return f"{len(at)} of {len(usable)} images, at positions {positions}"


@contextmanager
def explained(images: Tensor, network: nn.Module) -> Iterator[None]:
    """Where a network fails on images that do not fit its weights, raise a typed error that names both."""
    try:
        yield
    except Exception as error:
        typed, one = isinstance(error, AdaptationError), images.ndim == 3
        why = None if typed and not one else _mismatch(images, network)
        if why is None and one and not typed:
            why = BadBatch(
                f"The network cannot take a batch of shape {tuple(images.shape)}. One image? Pass image[None]."
            )
        if why is None:
            raise
        raise why from error


def _mismatch(images: Tensor, network: nn.Module) -> AdaptationError | None:
    for name, p in network.named_parameters():
        if p.layout != torch.strided or not p.is_floating_point():
            kind = p.dtype if p.layout == torch.strided else p.layout
            return UnsupportedNetwork(
                f"The images are {images.dtype}, but {name!r} is {kind}. Load dense real weights."
            )
    first = next(((n, m) for n, m in network.named_modules() if isinstance(m, _ConvNd | nn.Linear)), None)
    if first is None:
        return None
    name, layer = first
    if isinstance(layer, nn.Linear):
        taken = None if images.shape[-1] == layer.in_features else f"(N, ..., {layer.in_features})"
    else:
        sides = len(layer.kernel_size)
        fits = images.ndim == 2 + sides and images.shape[1] == layer.in_channels
        taken = None if fits else f"(N, {layer.in_channels}, {', '.join('DHW'[-sides:])})"
    if taken is None:
        return None
    one = " One image? Pass image[None]." if images.ndim == 3 else ""
    return BadBatch(f"The images have shape {tuple(images.shape)}, but the layer {name!r} takes {taken}.{one}")


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
