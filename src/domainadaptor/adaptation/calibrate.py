"""`calibrate`: a plain network with the statistics of a new domain, measured once on unlabeled images."""

import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from domainadaptor.adaptation.batch import explained, fitted_batch, given_batches
from domainadaptor.adaptation.copying import independent_copy, unwrap, write_tensors
from domainadaptor.adaptation.logits import finite
from domainadaptor.errors import BadBatch, BadOption, SmallBatch, UnsupportedNetwork
from domainadaptor.norms.moments import Moments, image_moments
from domainadaptor.norms.recognize import find_norms
from domainadaptor.norms.shift import ImageSums, share_of

FEWEST = 16  # images, without a warning
FEW = f"{{images}} images are few for the statistics of a domain. Give {FEWEST} or more, best 64."
_SPLIT = 64  # images of a tensor that are measured together


def calibrate(network: nn.Module, batches: Iterable[Any], *, share: float | None = None) -> nn.Module:
    """Return a plain, independent network whose norm layers hold statistics of a new domain. No labels are needed.

    It costs what the network costs, answers single images, and can be saved, exported and compiled as the network can.
    Each image is measured once, batch by batch, so any number of images takes the same memory.

    Args:
        network: Any trained network with batch normalization; it is never changed.
        batches: Images of the new domain, shuffled, preprocessed as in training: a tensor (N, ...), or a loader of
            batches of images, (images, labels) or dicts with "pixel_values" or "image(s)". 64 or more images are best.
        share: Share of the new statistics, from 0 to 1; the rest is the source model's. None sets it for each layer by
            how far its statistics have shifted, so that a network without a shift stays as it is.

    Raises:
        BadBatch: Images cannot be used, or there are none.
        UnsupportedNetwork: The network has no norm layer that can be calibrated.

    Example:
        >>> plain = da.calibrate(network, torch.randn(64, 3, 16, 16))
        >>> plain(images[:1]).shape
        torch.Size([1, 5])
    """
    calibration = Calibration(network, share=share)
    for images in given_batches(batches, _SPLIT):
        calibration.add(images)
    plain = calibration.network()
    if calibration.images < FEWEST:
        warnings.warn(SmallBatch(FEW.format(images=calibration.images)), stacklevel=2)
    return plain


class LayerShift(NamedTuple):
    """What calibration found in one norm layer."""

    name: str
    shift: float  # squared distance from the source statistics; the unit is that between an image and all images
    share: float  # of the new statistics


class Calibration:
    """`calibrate` for images that come bit by bit: `add` batches, ask for the `network` at any time.

    Each batch is normalized with the mixture so far, itself included, so that later layers are measured behind earlier
    layers that are calibrated already.

    Args:
        network: As for `calibrate`.
        share: As for `calibrate`.

    Example:
        >>> calibration = da.Calibration(network)
        >>> for batch in torch.randn(64, 3, 16, 16).split(16):
        ...     calibration.add(batch)
        >>> calibration.images, [layer.name for layer in calibration.layers()]
        (64, ['1'])
        >>> plain = calibration.network()
    """

    @torch.inference_mode(False)  # the tensors of the new network must be ordinary ones
    def __init__(self, network: nn.Module, *, share: float | None = None) -> None:
        if share is not None and not 0 <= share <= 1:
            raise BadOption(f"share: expected a number from 0 to 1, or None to set it by the shift, got {share!r}")
        plain = unwrap(network)
        self.images = 0
        self._share = share
        self._requires_grad = {name: p.requires_grad for name, p in plain.named_parameters()}
        self._source = independent_copy(plain).eval()
        self._measuring = independent_copy(self._source)
        found, _ = find_norms(self._measuring)
        self._norms = {
            name: Moments(norm.mean.detach().cpu().double(), norm.var.detach().cpu().double())
            for name, norm in found.items()
        }
        self._sums: dict[str, ImageSums] = {}
        for name, norm in found.items():  # not hooks, which a network that calls layer.forward(x) would pass by
            norm.layer.forward = partial(self._forward, name, norm.layer, norm.layer.forward)

    @torch.inference_mode(False)
    @torch.no_grad()
    def add(self, images: Tensor) -> None:
        """Measure a batch, (N, ...). After an error, it is as if the batch had not been given."""
        images = fitted_batch(images, self._source)
        held = dict(self._sums)
        try:
            with explained(images, self._source):
                self._measuring(images.clone())
        except BaseException:
            self._sums = held
            raise
        self.images += len(images)

    def layers(self) -> list[LayerShift]:
        """Return shift and share of each norm layer that was used, in the network's order."""
        found = []
        for name, source in self._norms.items():
            if (sums := self._sums.get(name)) is not None:
                found.append(LayerShift(name, sums.shift(source), self._share_of(sums, source)))
        return found

    @torch.inference_mode(False)
    def network(self) -> nn.Module:
        """Return a new network with the mixed statistics, in eval mode."""
        if not self.images:
            raise BadBatch("Expected images of the new domain, got none. Is the loader empty, or was it used up?")
        if not self._sums:
            raise UnsupportedNetwork("The network's forward used none of its norm layers: nothing can be calibrated.")
        plain = independent_copy(self._source)
        for name, parameter in plain.named_parameters():
            parameter.requires_grad_(self._requires_grad[name])
        for name in self._sums:
            self._write(name, plain.get_submodule(name))
        return plain

    def _forward(self, name: str, layer: nn.Module, forward: Callable[[Tensor], Tensor], input: Tensor) -> Tensor:
        """Measure what a layer is given, then normalize it with the mixture."""
        batch = ImageSums.of(image_moments(input), input[0, 0].numel())
        self._sums[name] = self._sums[name].plus(batch) if name in self._sums else batch
        self._write(name, layer)
        return forward(input)

    def _write(self, name: str, layer: nn.Module) -> None:
        source, sums = self._norms[name], self._sums[name]
        mixed = source.mix(sums.moments(), 1 - self._share_of(sums, source))
        values = {
            part: value.to(layer.get_buffer(part))
            for part, value in zip(("running_mean", "running_var"), mixed, strict=True)
        }
        if not finite(values):
            raise BadBatch(f"The statistics of these images are not finite at layer {name!r}. Are they normalized?")
        write_tensors(layer, values)

    def _share_of(self, sums: ImageSums, source: Moments) -> float:
        if sums.values < 2:  # a single value has no variance
            return 0.0
        return (
            float(share_of(torch.tensor(sums.shift(source)), sums.images))
            if self._share is None
            else float(self._share)
        )
