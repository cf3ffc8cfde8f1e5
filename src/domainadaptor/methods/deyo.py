"""DeYO: entropy of images whose prediction depends on object shape. Lee et al., ICLR 2024."""

import math
from collections.abc import Sequence
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import domainadaptor as da
from domainadaptor import Option, method
from domainadaptor import option_types as t
from domainadaptor.augmentation.crops import memory_format, rearranged
from domainadaptor.methods.sar import skipped
from domainadaptor.methods.tent import descend

__all__ = ["deyo"]

Drop = Annotated[float, Option(ge=-1, le=1)]


@method(
    paper="Lee et al., DeYO",
    year=2024,
    kind="loss",
    forwards="2 (3 if it predicts after)",
    backwards="1",
    options=t.gradient_steps,
)
def deyo(
    network: nn.Module,
    *,
    margin: t.EntropyMargin = 0.5,
    drop: Drop = 0.2,
    patches: t.Count = 4,
    weight_margin: t.Share = 0.4,
    skip: t.Skip = None,
    seed: t.Seed = 0,
    **steps: Any,
) -> da.Adaptor:
    """Entropy of images that depend on object shape.

    Args:
        network: Any trained network with norm layers that have a scale or shift; batch norms use batch statistics.
        drop: Keep images whose class loses more than this probability when patches are shuffled.
        patches: Patches per side; at most one per pixel.
        weight_margin: An image weighs exp(this * log(classes) - entropy) + exp(probability that its class lost).
    """
    objective = _ShapeEntropy(margin=margin, drop=drop, patches=patches, weight_margin=weight_margin, seed=seed)
    return descend(network, objective, skip=skipped(network, skip), **steps)


class _ShapeEntropy(da.Objective):
    """The weighted mean entropy of confident images whose class loses probability when patches are shuffled."""

    def __init__(self, *, margin: float, drop: float, patches: int, weight_margin: float, seed: int) -> None:
        self.margin, self.drop, self.patches, self.weight_margin = margin, drop, patches, weight_margin
        self._random = da.SeededGenerator(seed)

    def _parts(self) -> Sequence[da.Stateful]:
        return (self._random,)

    def __call__(self, network: da.AdaptiveNetwork, images: Tensor, logits: Tensor) -> Tensor | None:
        """Return the mean over the images kept; None if there are none."""
        most = math.log(logits.shape[1])
        h = da.entropy(logits)
        confident = (h.detach() < self.margin * most).nonzero().flatten()
        if len(confident) == 0:
            return None
        with torch.no_grad():
            # Only confident images, so that batch statistics are theirs alone, as published.
            shuffled = shuffle_patches(images[confident], self.patches, self._random.generator)
            q = da.in_loss_precision(network(shuffled)).softmax(1)
            p = logits[confident].softmax(1)
            own = p.argmax(1, keepdim=True)
            lost = (p.gather(1, own) - q.gather(1, own)).squeeze(1)
            kept = lost > self.drop
        if not bool(kept.any()):
            return None
        h, lost = h[confident][kept], lost[kept]
        weight = (self.weight_margin * most - h.detach()).exp() + lost.exp()
        return (weight * h).mean()


def shuffle_patches(images: Tensor, patches: int, generator: torch.Generator) -> Tensor:
    """Shuffle the patches of each image. Sides that do not divide are resized before and after."""
    if images.ndim != 4:
        raise da.BadBatch(f"Expected images of shape (N, C, H, W), got {tuple(images.shape)}. Use another method.")
    height, width = images.shape[2:]
    rows, columns = min(patches, height), min(patches, width)
    divisible = height - height % rows, width - width % columns
    fits = divisible == (height, width)
    orders = [torch.randperm(rows * columns, generator=generator, device="cpu") for _ in images]
    x = rearranged(images if fits else _resize(images, divisible), rows, columns, torch.stack(orders))
    return (x if fits else _resize(x, (height, width))).contiguous(memory_format=memory_format(images))


def _resize(images: Tensor, size: tuple[int, int]) -> Tensor:
    return F.interpolate(images, size=size, mode="bilinear", align_corners=False)
