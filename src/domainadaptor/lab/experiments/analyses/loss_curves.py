"""Unsupervised losses, and the norms of their gradients, by confidence."""

from collections.abc import Callable

import torch
from torch import Tensor

from domainadaptor.adaptation import losses
from domainadaptor.lab.experiments.analyses import MeasurementInputs
from domainadaptor.lab.records.measurements import LossCurve, LossCurves, TemperatureEffect

__all__ = ["loss_curves"]

_BINS = 20  # of confidence


def loss_curves(inputs: MeasurementInputs, *, scale: float = 2.0) -> LossCurves:
    """Return losses and gradient norms of real logits by confidence, and the effect of temperature."""
    device = inputs.test.device
    with torch.no_grad():
        logits = torch.cat([inputs.opened.network(x.to(device)).double().cpu() for x in inputs.batches()])
    confidence = logits.softmax(1).amax(1)
    heat = losses.temperature(logits, "batch_mean", scale)
    per_image: dict[str, Callable[[Tensor], Tensor]] = {
        "EM": losses.entropy,
        "SLR": losses.slr,
        "GEM-T": lambda z: losses.gem_t(z, heat),
        "GEM-SKD": lambda z: losses.gem_skd(z, heat),
    }
    low = 1 / logits.shape[1]
    bins = ((confidence - low) / (1 - low) * _BINS).long().clamp(0, _BINS - 1)
    ranked = logits[confidence > 0.9].sort(1, descending=True).values
    tau = float(heat.tau[0])
    return LossCurves(
        curves=tuple(_curve(label, loss, logits, confidence, bins) for label, loss in per_image.items()),
        temperature=TemperatureEffect(
            tau=tau,
            images=len(ranked),
            plain=tuple(ranked.softmax(1).mean(0).tolist()) if len(ranked) else (),
            scaled=tuple((ranked / tau).softmax(1).mean(0).tolist()) if len(ranked) else (),
        ),
    )


def _curve(label: str, loss: Callable[[Tensor], Tensor], logits: Tensor, confidence: Tensor, bins: Tensor) -> LossCurve:
    """Return the means of one loss in the bins of confidence that have images."""
    given = logits.clone().requires_grad_()
    values = loss(given)
    (gradient,) = torch.autograd.grad(values.sum(), given)
    columns = confidence, values.detach(), gradient.norm(dim=1)
    means = [tuple(float(column[bins == at].mean()) for at in bins.unique()) for column in columns]
    return LossCurve(label=label, confidence=means[0], loss=means[1], gradient=means[2])
