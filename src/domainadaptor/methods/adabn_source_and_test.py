"""AdaBN with the statistics of source and test images, measured once. Li et al., Pattern Recognition 2018."""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, final

import torch
from torch import Tensor, nn

import domainadaptor as da
from domainadaptor import method
from domainadaptor import option_types as t
from domainadaptor.adaptation.batch import fitted_batch, given_batches
from domainadaptor.norms.moments import in_float32, unbiased_factor

__all__ = ["AdabnSourceAndTest"]


class _Pool:
    """A forward pre-hook that accumulates mean and variance of a layer's input."""

    def __init__(self, channels: int) -> None:
        self.count = 0
        self.mean = torch.zeros(channels, dtype=torch.float64, device="cpu")
        self.squares = torch.zeros_like(self.mean)  # summed squared distances from the mean

    def __call__(self, layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        """Add a batch by merging moments; sums of squares of large numbers would lose digits."""
        x = inputs[0].detach()
        count = x.numel() // x.shape[1]
        moments = torch.var_mean(in_float32(x), dim=[0, *range(2, x.ndim)], correction=0)
        var, mean = (moment.cpu().double() for moment in moments)
        total, delta = self.count + count, mean - self.mean
        self.squares += count * var + delta.square() * (self.count * count / total)
        self.mean += delta * (count / total)
        self.count = total


@method(
    paper="Li et al., AdaBN",
    year=2018,
    kind="statistics",
    forwards="1 (and 1 of all given images)",
    needs=("source samples",),
)
@final
class AdabnSourceAndTest(da.Adaptor):
    """Measure statistics once, on all source and test images.

    One pass over each: batches are normalized by themselves on the way, as in training, and all values that a layer
    receives count alike, wherever they come from. The images are kept, to be measured again when the adaptor is moved
    or loads other weights.

    Args:
        network: Any trained network with batch normalization.
        source_images: Images like those of the training: a tensor, or batches that can be iterated repeatedly.
        target_images: The test images without labels: a tensor, or batches that can be iterated repeatedly.
        batch_size: Size of the batches that a tensor is split into.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        source_images: t.Images = None,
        target_images: t.Images = None,
        variance: t.Variance = "unbiased",
        batch_size: t.Count = 64,
    ) -> None:
        super().__init__(network)
        self._images = {
            "source_images": _repeatable("source_images", source_images),
            "target_images": _repeatable("target_images", target_images),
        }
        self._variance: t.Variance = variance
        self._batch_size = batch_size
        self._rebuild()

    def _build(self) -> da.AdaptiveNetwork:
        # Other weights or another precision have other statistics, so the images are iterated again.
        main = self._adaptive(norm=da.batch_only, learns="nothing")
        pools = {name: _Pool(len(norm.source_mean)) for name, norm in main.norms.items()}
        hooks = [norm.register_forward_pre_hook(pools[name]) for name, norm in main.norms.items()]
        with torch.no_grad(), self._guard.guarding():
            for images in chain.from_iterable(map(self._batches_of, self._images)):
                main.network(images.clone())
                main.end_batch()
        for hook in hooks:
            hook.remove()
        for name, norm in main.norms.items():
            assert isinstance(norm, da.MixedNorm)
            self._fix(name, norm, pools[name])
        return main

    def _fix(self, name: str, norm: da.MixedNorm, pool: _Pool) -> None:
        """Use the pooled statistics; a layer that saw fewer than two values keeps the source statistics."""
        norm.alpha = 1
        norm.used = pool.count > 0
        if pool.count > 1:
            norm.source_mean.copy_(pool.mean)
            norm.source_var.copy_(pool.squares / pool.count * unbiased_factor(pool.count, self._variance))
        if not da.finite(norm.source_mean, norm.source_var):
            raise da.BadBatch(f"The statistics of these images are not finite at layer {name!r}. Are they normalized?")

    def _batches_of(self, option: str) -> Iterator[Tensor]:
        """Yield the images of an option in batches, on the network's device and in its precision."""
        images = None
        for images in given_batches(self._images[option], self._batch_size):
            yield fitted_batch(images, self.source)
        if images is None:
            raise da.BadOption(f"{option}: expected images, got none")

    def _learn(self, images: Tensor) -> da.Adaptation:
        with torch.no_grad():
            logits = self._main(images)
        return da.Adaptation(logits, logits.clone())


def _repeatable(option: str, images: t.Images) -> Iterable[Any]:
    """Return the images of an option, or raise BadOption if there are none or they can be iterated only once."""
    if images is None:
        raise da.BadOption(
            f"this method measures source and test images together: pass {option}= a tensor of images, a list of "
            "batches or a DataLoader (on the command line --source-images DIR for predict, --source DOMAIN for "
            "evaluate; the test images are those to predict), or use adabn, which needs neither"
        )
    if isinstance(images, Iterator) or not isinstance(images, Iterable):
        raise da.BadOption(
            f"{option} is a {type(images).__name__}: expected a tensor, a list of batches or a DataLoader, which "
            "can be iterated repeatedly"
        )
    return images
