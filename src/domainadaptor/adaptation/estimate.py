"""How accurate a network is before and after adapting, estimated without labels; docs/diagnose.md."""

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from domainadaptor.adaptation.logits import in_loss_precision

Outcome = Literal["better", "same", "worse"]

# Chosen on the development sets of docs/diagnose.md, which also says how far off the estimates are.
_ACCURACY = -0.63, 1.24  # its log-odds after adapting: a constant, and the weight of those of the mean confidence
_GAIN = 1.3, -0.24  # weights of the preference for the new answers, and of the share of changed answers
_RIGHT_ONCE = 1.6, -0.28  # the same, for the share of images that are right either before or after, but not both times
_UNSURE = 0.006  # of the gain, with any number of images
_HEADLINES: dict[Outcome, str] = {
    "better": "Adapting should help.",
    "same": "Adapting should make no clear difference.",
    "worse": "Do not adapt: expect worse answers.",
}
_ERROR_BEFORE, _ERROR_AFTER = 0.05, 0.04  # mean distance from the truth on the confirmation sets


class Signals(NamedTuple):
    """What answers show without labels: means over the images, between 0 and 1."""

    images: int
    changed: float  # answers that adapting changes
    preference: float  # by how much the adapted network finds the new answer more probable than the old one
    confidence: float  # after adapting


class Estimated(NamedTuple):
    """A value, and how far off it usually is."""

    value: float
    error: float


class Expectation(NamedTuple):
    """What can be expected of `auto`: the accuracy before and after, and whether the difference exceeds noise."""

    before: Estimated
    after: Estimated
    outcome: Outcome

    @property
    def headline(self) -> str:
        """The outcome in a sentence."""
        return _HEADLINES[self.outcome]

    @property
    def sentence(self) -> str:
        """The accuracies in words."""
        return (
            f"About {self.before.value:.0%} of the answers should be right as the network is, and "
            f"{self.after.value:.0%} after adapting. This is estimated without labels, and usually off by "
            f"{self.before.error:.0%}."
        )


class Answers:
    """The answers of the source model and of `auto`, over any number of batches."""

    def __init__(self) -> None:
        self._images = 0
        self._sums = torch.zeros(3, dtype=torch.float64)

    def add(self, source: Tensor, adapted: Tensor) -> None:
        """Add the logits for a batch, (N, K)."""
        p = in_loss_precision(adapted.detach()).cpu().softmax(1)
        old, (confidence, new) = source.detach().cpu().argmax(1), p.max(1)
        preference = confidence - p.gather(1, old[:, None])[:, 0]
        self._sums += torch.stack([(old != new).sum(), preference.sum(), confidence.sum()])
        self._images += len(p)

    def signals(self) -> Signals:
        """Return what the answers show."""
        return Signals(self._images, *(self._sums / max(self._images, 1)).tolist())


def expect(signals: Signals, lost: float = 0.0) -> Expectation:
    """Return what can be expected of adapting, given what the answers show and what is lost besides.

    The outcome is "same" if the gain is less than two standard errors, as they would be with labels, of as many images.
    """
    inside = min(max(signals.confidence, 0.005), 0.995)
    after = 1 / (1 + math.exp(-_ACCURACY[0] - _ACCURACY[1] * math.log(inside / (1 - inside))))
    gain, once = (
        preferred * signals.preference + weight * signals.changed for preferred, weight in (_GAIN, _RIGHT_ONCE)
    )
    gain = min(max(gain, after - 1), after)
    before = after - gain
    gain, after = gain - lost, max(after - lost, 0.0)
    noise = 2 * math.sqrt(max(once, abs(gain), 1 / signals.images) / signals.images + _UNSURE**2)
    outcome: Outcome = "better" if gain > noise else "worse" if gain < -noise else "same"
    return Expectation(Estimated(before, _ERROR_BEFORE), Estimated(after, _ERROR_AFTER), outcome)
