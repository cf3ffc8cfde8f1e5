"""Rules for alpha, the weight of the source statistics in a norm layer.

"paper" is the rule as printed; "code" is the rule of the authors' program, which produced the printed results.
"shift" is the rule of `auto`: a bounded share of the batch, which grows with its shift (`norms.shift`).
"""

import torch
from torch import Tensor

from domainadaptor.norms.moments import Moments
from domainadaptor.norms.shift import batch_shift, number_of, share_of


def layer_alpha(rule: str, images: Moments, batch: Moments, source: Moments, deviations: bool) -> Tensor:
    """Return the mean alpha of the images, clipped to [0, 1]; 1 minus that for "-reversed" rules."""
    if rule == "shift":
        return 1 - share_of(batch_shift(images, batch, source, deviations), number_of(images.mean))
    name, _, reversed_ = rule.partition("-")
    alpha = image_alphas(name, images, batch, source, deviations).mean().clamp(0, 1)
    return 1 - alpha if reversed_ else alpha


def image_alphas(rule: str, images: Moments, batch: Moments, source: Moments, deviations: bool) -> Tensor:
    """Return alpha of each image, (N,), from the distances of means, and of deviations if asked for.

    "code" is 1 - d_st / (d_st + d_it + d_is) with mean squared distances, "paper" is 1 - d_st / (d_it + d_is) with
    Euclidean ones. Identical statistics keep the source.
    """

    def between(a: Tensor, b: Tensor) -> Tensor:
        return (a - b).square().mean(-1) if rule == "code" else (a - b).norm(dim=-1)

    def distance(one: Moments, other: Moments) -> Tensor:
        means = between(one.mean, other.mean)
        return means + between(one.var.sqrt(), other.var.sqrt()) if deviations else means

    d_st, d_it, d_is = distance(source, batch), distance(images, batch), distance(images, source)
    whole = d_st + d_it + d_is if rule == "code" else d_it + d_is
    return 1 - torch.where(whole > 0, d_st / whole, torch.zeros_like(whole))
