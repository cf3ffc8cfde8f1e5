"""SLR: a likelihood ratio whose gradient does not vanish, and diverse predictions. Mummadi et al., 2021."""

import math
from functools import partial
from typing import Any, Literal

from torch import Tensor, nn

from domainadaptor import AdaptiveNetwork, Adaptor, Objective, method
from domainadaptor import option_types as t
from domainadaptor.adaptation import losses
from domainadaptor.adaptation.objective import of_confident
from domainadaptor.methods.sar import skipped
from domainadaptor.methods.tent import descend, mixing

__all__ = ["slr"]

_RATIOS = {"authors": losses.likelihood_ratio, "domainadaptor": losses.slr}
# Confidence, diversity, layers to skip. The authors skip the top layers because the ratio has no lower bound.
_PUBLISHED = {"authors": (0.025, 1.0, ("layer4",)), "domainadaptor": (1.0, 0.0, ())}


class Ratio(Objective):
    """A weighted likelihood ratio, plus the divergence of the running mean prediction from uniform."""

    rows_only = True
    kept = ("_mean", "_next")
    _mean: Tensor | None = None
    _next: Tensor | None = None  # including this batch

    def __init__(self, form: str, confidence: float, diversity: float, kappa: float) -> None:
        self.form, self.confidence, self.diversity, self.kappa = form, confidence, diversity, kappa

    def __call__(self, network: AdaptiveNetwork, images: Tensor, logits: Tensor) -> Tensor:
        """Return the loss, with gradients through this batch's part of the running mean."""
        loss = self.confidence * _RATIOS[self.form](logits).mean()
        if self.diversity == 0:
            return loss
        classes = logits.shape[1]
        held = logits.new_full((classes,), 1 / classes) if self._mean is None else self._mean.to(logits)
        mean = self.kappa * held + (1 - self.kappa) * logits.softmax(1).mean(0)
        self._next = mean.detach()
        return loss + self.diversity * ((mean.clamp(min=1e-30).log() + math.log(classes)) * mean).sum()

    def end_batch(self) -> None:
        """Update the running mean, once per batch however many steps it takes."""
        if self._next is not None:
            self._mean, self._next = self._next, None


@method(
    paper="Mummadi et al., SLR",
    year=2021,
    kind="loss",
    forwards="1 (2 if it predicts after)",
    backwards="1",
    options=partial(t.gradient_steps, lr=6e-4, optimizer="adam"),
)
def slr(
    network: nn.Module,
    *,
    form: Literal["authors", "domainadaptor"] = "authors",
    confidence: t.NonNegative | None = None,
    diversity: t.NonNegative | None = None,
    kappa: t.Share = 0.9,
    skip: t.Skip = None,
    m: t.M = 1.0,
    variance: t.Variance = "biased",
    threshold: t.Threshold = None,
    adapt_from: t.AdaptFrom = 0.0,
    **steps: Any,
) -> Adaptor:
    """Soft likelihood ratio with diverse predictions.

    The authors also learn a transformation of the images, decay the learning rate and make five passes over the data;
    here each batch is seen once, as it is. DomainAdaptor's form is the ratio without its numerator, and nothing else.

    Args:
        network: Any trained network with norm layers that have a scale or shift; batch norms use batch statistics.
        form: "authors", sum p log((1 - p) / p), or "domainadaptor", sum p log(1 - p), as in its comparisons.
        confidence: Weight of the ratio; None: 0.025 for "authors", 1 for "domainadaptor".
        diversity: Weight of the divergence of the mean prediction from uniform; None: 1 for "authors", 0 for
            "domainadaptor".
        kappa: Weight of earlier batches in the running mean prediction, which starts uniform.
        skip: Layers that do not learn, as "layer4,norm"; "" skips none; None skips layer4 for "authors", else none.
    """
    usual = _PUBLISHED[form]
    confidence = usual[0] if confidence is None else confidence
    diversity = usual[1] if diversity is None else diversity
    return descend(
        network,
        of_confident(Ratio(form, confidence, diversity, kappa), threshold),
        norm=mixing(m, variance),
        adapt_from=adapt_from,
        skip=usual[2] if skip is None else skipped(network, skip),
        **steps,
    )
