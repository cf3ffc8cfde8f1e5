"""Rules for alpha, the weight of the source statistics in a norm layer.

"paper" is the rule as printed; "code" is the rule of the authors' program, which produced the printed results.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from domainadaptor.norms.moments import Moments

AlphaRule = Callable[[Moments, Moments, Moments, bool], Tensor]


def alpha_code(images: Moments, batch: Moments, source: Moments, deviations: bool) -> Tensor:
    """Return alpha of each image by mean squared distances: 1 - d_st / (d_st + d_it + d_is), (N,)."""
    d_st, d_it, d_is = _distances(images, batch, source, deviations, lambda a, b: (a - b).square().mean(-1))
    return 1 - _ratio(d_st, d_st + d_it + d_is)


def alpha_paper(images: Moments, batch: Moments, source: Moments, deviations: bool) -> Tensor:
    """Return alpha of each image by Euclidean distances: 1 - d_st / (d_it + d_is), (N,)."""
    d_st, d_it, d_is = _distances(images, batch, source, deviations, lambda a, b: (a - b).norm(dim=-1))
    return 1 - _ratio(d_st, d_it + d_is)


RULES: dict[str, AlphaRule] = {"code": alpha_code, "paper": alpha_paper}


def layer_alpha(rule: str, images: Moments, batch: Moments, source: Moments, deviations: bool) -> Tensor:
    """Return the mean alpha of the images, clipped to [0, 1]; 1 minus that for "-reversed" rules."""
    name, _, reversed_ = rule.partition("-")
    alpha = RULES[name](images, batch, source, deviations).mean().clamp(0, 1)
    return 1 - alpha if reversed_ else alpha


def _distances(
    images: Moments,
    batch: Moments,
    source: Moments,
    deviations: bool,
    between: Callable[[Tensor, Tensor], Tensor],
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the distances source-batch, images-batch and images-source, of means and perhaps deviations."""

    def distance(one: Moments, other: Moments) -> Tensor:
        means = between(one.mean, other.mean)
        return means + between(one.var.sqrt(), other.var.sqrt()) if deviations else means

    return distance(source, batch), distance(images, batch), distance(images, source)


def _ratio(part: Tensor, whole: Tensor) -> Tensor:
    """Return the quotient, or 0 if the whole is 0: identical statistics keep the source."""
    return torch.where(whole > 0, part / whole, torch.zeros_like(whole))
