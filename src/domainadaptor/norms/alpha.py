"""Alpha, the weight of the source statistics in a norm layer: two readings of the paper, reversed ones, and numbers.

`paper` is the rule that the paper prints; `code` is the rule of its authors' program, which made the printed results.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from domainadaptor.norms.moments import Moments

AlphaRule = Callable[[Moments, Moments, Moments, bool], Tensor]


def alpha_code(images: Moments, batch: Moments, source: Moments, deviations: bool) -> Tensor:
    """Each image's alpha by mean squared distances: 1 - d_st / (d_st + d_it + d_is), (N,)."""
    apart, near, far = _distances(images, batch, source, deviations, lambda a, b: (a - b).square().mean(-1))
    return 1 - _ratio(apart, apart + near + far)


def alpha_paper(images: Moments, batch: Moments, source: Moments, deviations: bool) -> Tensor:
    """Each image's alpha by Euclidean distances: 1 - d_st / (d_it + d_is), (N,)."""
    apart, near, far = _distances(images, batch, source, deviations, lambda a, b: (a - b).norm(dim=-1))
    return 1 - _ratio(apart, near + far)


RULES: dict[str, AlphaRule] = {"code": alpha_code, "paper": alpha_paper}


def layer_alpha(rule: str, images: Moments, batch: Moments, source: Moments, deviations: bool) -> Tensor:
    """One layer's alpha: the images' mean, within [0, 1]; a reversed rule gives 1 minus that."""
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
    """Source to batch, images to batch, images to source; of means alone where images have no deviation."""

    def distance(one: Moments, other: Moments) -> Tensor:
        means = between(one.mean, other.mean)
        return means + between(one.var.sqrt(), other.var.sqrt()) if deviations else means

    return distance(source, batch), distance(images, batch), distance(images, source)


def _ratio(part: Tensor, whole: Tensor) -> Tensor:
    """The quotient, and 0 where the whole is 0: identical statistics keep the source."""
    return torch.where(whole > 0, part / whole, torch.zeros_like(whole))
