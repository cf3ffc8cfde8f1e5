"""Unsupervised losses per image: entropy, soft likelihood ratio (SLR), generalized entropy minimization (GEM).

With p = softmax(z / tau_p) and q = softmax(z / tau_q), the GEM loss of an image is -tau_q^2 * sum(p * log q).
"""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

_FLOOR = 1e-6  # temperature of equal logits, whose standard deviation is 0


class Temperature(NamedTuple):
    """The temperature of each image, and the factor of its loss."""

    tau: Tensor  # (N, 1)
    factor: Tensor  # (N,)


def entropy(logits: Tensor) -> Tensor:
    """Return the Shannon entropy of each prediction, (N,).

    Example:
        >>> da.entropy(torch.zeros(1, 2))
        tensor([0.6931])
    """
    return -(logits.softmax(1) * logits.log_softmax(1)).sum(1)


def slr(logits: Tensor) -> Tensor:
    """Return the soft likelihood ratio as in DomainAdaptor's program: sum(p * log(1 - p + 1e-8)), (N,).

    Unlike `likelihood_ratio`, it does not divide by p.
    """
    p = logits.softmax(1)
    return (p * (1 - p + 1e-8).log()).sum(1)


def likelihood_ratio(logits: Tensor) -> Tensor:
    """Return the soft likelihood ratio of Mummadi et al.: -sum(p * log(p / (1 - p))), (N,).

    It equals sum(p_c * (logsumexp of the other logits - z_c)). Its gradient does not vanish for confident predictions.
    """
    p = logits.softmax(1)
    top = logits == logits.amax(1, keepdim=True)
    top = top & (top.cumsum(1) == 1)  # only the first of equal ones
    # log(1 - p) is exact except for the largest p, where 1 - p may round to 0: there, sum the other logits.
    rest = logits.logsumexp(1, keepdim=True) + (-p.masked_fill(top, 0.0)).log1p()
    rest = rest.where(~top, logits.masked_fill(top, float("-inf")).logsumexp(1, keepdim=True))
    return (p * (rest - logits)).sum(1)


def temperature(logits: Tensor, rule: str | float, scale: float) -> Temperature:
    """Return the temperature of each image and the factor of its loss, as constants to autograd.

    The rule "code" (the authors' program) gives each image its own temperature but multiplies all losses by the batch
    mean of the squares. "per_image" multiplies each loss by its own square. "batch_mean" (the paper) has one
    temperature.
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
    """Return GEM-T, (N,): the entropy at a high temperature."""
    return heat.factor * entropy(logits / heat.tau)


def gem_toward(target: Tensor, logits: Tensor, heat: Temperature) -> Tensor:
    """Return GEM with fixed target probabilities, (N,): the image's own in GEM-SKD, those of its views in GEM-Aug."""
    return -heat.factor * (target.detach() * (logits / heat.tau).log_softmax(1)).sum(1)


def gem_skd(logits: Tensor, heat: Temperature) -> Tensor:
    """Return GEM-SKD, (N,): the softened prediction is distilled from the original one."""
    return gem_toward(logits.softmax(1), logits, heat)


def with_temperature(
    loss: Callable[[Tensor, Temperature], Tensor], rule: str | float, scale: float, logits: Tensor
) -> Tensor:
    """Return a GEM loss with the temperature computed from the logits, (N,)."""
    return loss(logits, temperature(logits, rule, scale))
