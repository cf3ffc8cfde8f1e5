"""DeYO: entropy of images whose answer depends on the shape of things. Lee et al., ICLR 2024."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from domainadaptor.adaptation.adaptor import Adaptor
from domainadaptor.adaptation.logits import in_loss_precision
from domainadaptor.adaptation.losses import entropy
from domainadaptor.adaptation.objective import Forward, Objective
from domainadaptor.adaptation.optimizers import optimizer_called
from domainadaptor.adaptation.state import Draws, Part
from domainadaptor.adaptation.step import StepAdaptor
from domainadaptor.errors import BadBatch
from domainadaptor.method_card import about
from domainadaptor.methods.sar import skipped
from domainadaptor.norms.batch_only import batch_only
from domainadaptor.options import check_count, check_number

__all__ = ["deyo"]


@about("Lee et al., DeYO", 2024, "loss", forwards="2 (3 if it predicts after)", backwards="1")
def deyo(
    network: nn.Module,
    *,
    margin: float = 0.5,
    drop: float = 0.2,
    patches: int = 4,
    weight_margin: float = 0.4,
    skip: str | Sequence[str] | None = None,
    lr: float = 2.5e-4,
    optimizer: str = "sgd",
    momentum: float = 0.9,
    steps: int = 1,
    reset_every: int | None = None,
    predict: str = "before",
    seed: int = 0,
) -> Adaptor:
    """Entropy of images that are sure, and less so when their patches are shuffled.

    Args:
        network: Any trained network with norm layers that have a scale or shift; batch norms use batch statistics.
        margin: Images are kept whose entropy is below this times the logarithm of the number of classes.
        drop: Images are kept whose class loses more than this probability when patches are shuffled.
        patches: Each side is cut into so many; smaller images into as many as they have pixels.
        weight_margin: An image weighs exp(this * log(classes) - entropy) + exp(what its class lost).
        skip: Layers that do not learn, as "layer4,norm"; "" skips none. None skips the last stage, as its authors:
            `layer4` of ResNets, the last quarter of a transformer's blocks and its last norm.
        lr: The learning rate.
        optimizer: "sgd" as its authors, or "adam".
        momentum: Of "sgd"; Adam's first.
        steps: How many steps each batch gets.
        reset_every: After how many batches everything is forgotten: None never, 1 after each (the paper's protocol).
        predict: "before" the step as its authors, or "after" it with one more pass (the paper's protocol).
        seed: Of the shuffles.
    """
    check_number("margin", margin, low=0, high=1)
    check_number("drop", drop, low=-1, high=1)
    check_number("weight_margin", weight_margin, low=0, high=1)
    check_count("patches", patches, low=1)
    check_count("steps", steps, low=1)
    check_count("seed", seed, low=0)
    return StepAdaptor(
        network,
        norm=batch_only,
        objective=_ShapeEntropy(margin=margin, drop=drop, patches=patches, weight_margin=weight_margin, seed=seed),
        optimizer=optimizer_called(optimizer, lr=lr, momentum=momentum),
        steps=steps,
        reset_every=reset_every,
        predict=predict,
        others=True,
        skip=skipped(network, skip),
    )


class _ShapeEntropy(Objective):
    """The weighted mean entropy of sure images whose class suffers when their patches are shuffled."""

    def __init__(self, *, margin: float, drop: float, patches: int, weight_margin: float, seed: int) -> None:
        self.margin = margin
        self.drop = drop
        self.patches = patches
        self.weight_margin = weight_margin
        self._draws = Draws(seed)

    def _parts(self) -> Sequence[Part]:
        return (self._draws,)

    def __call__(self, forward: Forward, images: Tensor, logits: Tensor) -> Tensor | None:
        """The mean over the images kept; None if there are none."""
        most = math.log(logits.shape[1])
        h = entropy(logits)
        sure = (h.detach() < self.margin * most).nonzero().flatten()
        if len(sure) == 0:
            return None
        with torch.no_grad():
            # Only the sure images, so that under batch statistics they are normalized among themselves, as published.
            shuffled = shuffle_patches(images[sure], self.patches, self._draws.generator)
            q = in_loss_precision(forward(shuffled)).softmax(1)
            p = logits[sure].softmax(1)
            own = p.argmax(1, keepdim=True)
            lost = (p.gather(1, own) - q.gather(1, own)).squeeze(1)
            kept = lost > self.drop
        if not bool(kept.any()):
            return None
        h, lost = h[sure][kept], lost[kept]
        weight = (self.weight_margin * most - h.detach()).exp() + lost.exp()
        return (weight * h).mean()


def shuffle_patches(images: Tensor, patches: int, generator: torch.Generator) -> Tensor:
    """Each image's patches in an order of its own; sides that do not divide are resized for it, and back again."""
    if images.ndim != 4:
        raise BadBatch(f"patches are of images of shape (N, C, H, W), got {tuple(images.shape)}; use another method")
    count, channels, height, width = images.shape
    rows, columns = min(patches, height), min(patches, width)
    h, w = height // rows, width // columns
    fits = (rows * h, columns * w) == (height, width)
    x = images if fits else _resized(images, (rows * h, columns * w))
    x = x.reshape(count, channels, rows, h, columns, w).permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
    order = torch.stack([torch.randperm(rows * columns, generator=generator, device="cpu") for _ in range(count)])
    at = torch.arange(count, device="cpu").unsqueeze(1)
    x = x[at.to(x.device), order.to(x.device)].unflatten(1, (rows, columns)).permute(0, 3, 1, 4, 2, 5)
    x = x.reshape(count, channels, rows * h, columns * w)
    memory = torch.channels_last if images.is_contiguous(memory_format=torch.channels_last) else torch.contiguous_format
    return (x if fits else _resized(x, (height, width))).contiguous(memory_format=memory)


def _resized(images: Tensor, size: tuple[int, int]) -> Tensor:
    return F.interpolate(images, size=size, mode="bilinear", align_corners=False)
