"""Unsupervised losses of logits, one value per image: entropy, soft likelihood ratio, generalized entropy (GEM).

With p = softmax(z / tau_p) and q = softmax(z / tau_q), an image's GEM loss is -tau_q^2 * sum(p * log q).
"""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

_FLOOR = 1e-6  # equal logits have no deviation


class Temperature(NamedTuple):
    """What divides each image's logits, and what multiplies its loss."""

    tau: Tensor  # (N, 1)
    factor: Tensor  # (N,)


def entropy(logits: Tensor) -> Tensor:
    """Shannon entropy of each prediction, (N,)."""
    return -(logits.softmax(1) * logits.log_softmax(1)).sum(1)


def slr(logits: Tensor) -> Tensor:
    """Soft likelihood ratio as DomainAdaptor's authors run it: sum(p * log(1 - p + 1e-8)), (N,).

    Its inventors divide p by the rest and add a diversity term; this form has neither.
    """
    p = logits.softmax(1)
    return (p * (1 - p + 1e-8).log()).sum(1)


def likelihood_ratio(logits: Tensor) -> Tensor:
    """Soft likelihood ratio as its inventors write it: -sum(p * log(p / (1 - p))), (N,).

    That is sum(p_c * (logsumexp of the other logits - z_c)), whose gradient does not vanish for confident predictions.
    """
    p = logits.softmax(1)
    top = logits == logits.amax(1, keepdim=True)
    top = top & (top.cumsum(1) == 1)  # one of equal ones
    # log(1 - p) is exact but for the largest p, whose rest rounds to 0: there the other logits are summed instead.
    rest = logits.logsumexp(1, keepdim=True) + (-p.masked_fill(top, 0.0)).log1p()
    rest = rest.where(~top, logits.masked_fill(top, float("-inf")).logsumexp(1, keepdim=True))
    return (p * (rest - logits)).sum(1)


def temperature(logits: Tensor, rule: str | float, scale: float) -> Temperature:
    """The temperature of each image and the factor of its loss; constants to autograd.

    `code`, the authors' program, gives each image its own temperature but multiplies every loss by the batch mean of
    the squares; `per_image` multiplies each by its own square; `batch_mean`, the paper, has one temperature.
    """
    rows = logits.shape[0]
    if not isinstance(rule, str):
        tau = logits.new_full((rows, 1), float(rule))
    else:
        tau = scale * logits.detach().std(1, keepdim=True)
        tau = tau.mean(0, keepdim=True).expand(rows, 1) if rule == "batch_mean" else tau
    tau = tau.clamp(min=_FLOOR)
    squares = tau.square().squeeze(1)
    return Temperature(tau, squares.mean().expand(rows) if rule == "code" else squares)


def gem_t(logits: Tensor, heat: Temperature) -> Tensor:
    """GEM-T: both distributions at the high temperature, gradient through both, (N,)."""
    return heat.factor * entropy(logits / heat.tau)


def gem_toward(target: Tensor, logits: Tensor, heat: Temperature) -> Tensor:
    """GEM toward fixed probabilities: -SKD takes the image's own, -Aug those of its views, (N,)."""
    return -heat.factor * (target.detach() * (logits / heat.tau).log_softmax(1)).sum(1)


def gem_skd(logits: Tensor, heat: Temperature) -> Tensor:
    """GEM-SKD: the hot prediction learns from the plain one, (N,)."""
    return gem_toward(logits.softmax(1), logits, heat)


def heated(loss: Callable[[Tensor, Temperature], Tensor], rule: str | float, scale: float, logits: Tensor) -> Tensor:
    """A GEM loss with its temperature taken from the logits, (N,)."""
    return loss(logits, temperature(logits, rule, scale))
