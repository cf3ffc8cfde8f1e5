"""CollapseGuard: notices from predictions and weights alone that an adaptor is losing what the network knew."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from domainadaptor.adaptation.adaptive_network import AdaptiveNetwork
from domainadaptor.adaptation.logits import in_loss_precision
from domainadaptor.adaptation.losses import entropy
from domainadaptor.adaptation.state import Stateful

_WINDOW = 256  # images, or four per class
_STRAY = 0.006, 0.02  # how far weights may go, relative to their size, under fixed and under batch statistics
_FAR = 0.3  # how far they may go at all
_LESS = 0.75  # predictions that tell less than this part of what the source's do are no reason to go anywhere
_POOR = 0.2  # predictions this poor are compared with the source's for the same batch
_FRACTION = 0.25  # of those: less is collapse
_ENOUGH = 8  # images of a batch, to be compared with the source's by themselves

Seen = tuple[Tensor, float, int]  # the mean prediction, the mean entropy, how many images


class Drift(NamedTuple):
    """How far weights are from the source, and under which statistics that matters."""

    far: float  # relative to the size of the source's
    batch: float  # how much of the statistics that layers normalize with is the batch's own, from 0 to 1
    follows: bool = False  # whether statistics are remembered that follow the stream


def drift_of(network: AdaptiveNetwork) -> Drift:
    """Measure the drift of scales and shifts; of all weights only if those do not learn."""
    learnable = network.learnable()
    norms = [name for name in learnable if name not in network.weights]
    pairs = [(learnable[name].detach(), network.start(name)) for name in norms or learnable]
    used = [norm for norm in network.norms.values() if norm.used]
    follows = any(norm.follows for norm in used)
    if not pairs:
        return Drift(0.0, 1.0, follows)
    far = torch.stack([(p - start).double().norm() for p, start in pairs]).norm()
    size = torch.stack([start.double().norm() for _, start in pairs]).norm()
    return Drift(float(far / size.clamp(min=1e-30)), min((norm.batch_share for norm in used), default=0.0), follows)


class CollapseGuard(Stateful):
    """Says when to go back to the source: predictions tell images apart too badly for how far the weights have gone.

    What predictions tell is the entropy of their mean less their mean entropy, over the last 256 images or four times
    the number of classes, as a part of the most that so many classes allow: 1 if they are sure and varied, 0 if all are
    alike. Both ways to collapse, one answer for everything and no answer at all, bring it down; ordinary batches of a
    network that works have 0.4 to 1. With t for it, weights may go 0.006 / (1 - t) away from the source, as a part of
    its size; where layers normalize with the statistics of the batch, which undoes much of what weights do, it is
    0.02 / (1 - t)²; and never more than 0.3. So a network whose answers stay good learns on, while noise, constant
    images or one class at a time end it before it loses much.

    Under the statistics of a batch, images that are noise or all of one class get sure and varied answers too, and more
    so the longer they are learned from. The source network, with its own statistics, is not deceived: t is the lower of
    what the answers tell and what the source's tell, once the weights have gone half as far as any answer allows; and
    it is 0 where the answers tell less than three quarters of what the source's do, as with one image at a time. Where
    a domain is so far away that the source tells little of it, learning starts over more often than it would have to.

    No matter how near the weights are, it is also collapse where the answers tell less than 0.2, and for the batch
    itself less than a quarter of what the source network makes of it.

    Statistics that follow the stream go wherever it goes, and nothing in noise says that it is noise. So each batch of
    eight images or more is compared: answers that tell less than three quarters of what the source network's do are not
    given, and the statistics are forgotten. After noise most batches of ordinary images tell 0.1 to 0.5 of what the
    source tells, where nothing was wrong 0.8 and more.
    """

    def __init__(self) -> None:
        self._seen: Seen | None = None
        self._source: Seen | None = None  # the same of the source's own answers, where it was asked

    def look(self, logits: Tensor, drift: Drift, source: Callable[[], Tensor]) -> str | None:
        """Takes in a batch's answer; why it is time to go back, or None.

        Args:
            logits: The answer.
            drift: How far the weights are from the source.
            source: Gives the source network's own answer for the batch.
        """
        own = in_loss_precision(logits.detach())
        self._seen = _with(self._seen, own)
        told = _information(*self._seen)
        stray = drift.batch * _STRAY[1] + (1 - drift.batch) * _STRAY[0]
        asked = None
        doubtful = told < _POOR or not drift.far <= stray / 2
        if doubtful or (drift.follows and len(own) >= _ENOUGH):
            asked = in_loss_precision(source().detach())
        if doubtful and asked is not None:
            self._source = _with(self._source, asked)
        theirs = told if self._source is None else _information(*self._source)
        known = min(told, theirs) if told >= _LESS * theirs else 0.0
        limit = min(_FAR, stray / max(1 - known, 1e-6) ** (1 + drift.batch))
        if not drift.far <= limit:  # nor if it is not a number
            return (
                f"the guard went back to the source: the weights are {drift.far:.3f} of their size away from it, and "
                f"with predictions that tell {told:.2f} of what they could, and the source network's own {theirs:.2f}, "
                f"{limit:.3f} is the limit"
            )
        if asked is not None and (told < _POOR or drift.follows):
            now, plain = (_information(*_means(z), len(z)) for z in (own, asked))
            least = _LESS if drift.follows and len(own) >= _ENOUGH else _FRACTION
            if plain > _POOR and now < least * plain:
                return (
                    f"the guard went back to the source: predictions tell {now:.2f} of what they could, the source "
                    f"network's {plain:.2f}"
                )
        return None

    def reset(self) -> None:
        """No image was seen."""
        self._seen = self._source = None

    def state_dict(self) -> tuple[Seen | None, Seen | None]:
        """What was seen."""
        return self._seen, self._source  # never written to, only replaced

    def load_state_dict(self, state: tuple[Seen | None, Seen | None]) -> None:
        """Goes back to that."""
        self._seen, self._source = state


def _with(seen: Seen | None, logits: Tensor) -> Seen:
    """What was seen, with one more batch in it; what is older than the window fades."""
    mean, sureness = _means(logits)
    if seen is None:
        return mean, sureness, len(logits)
    old, old_sureness, count = seen
    count = min(count + len(logits), max(_WINDOW, 4 * logits.shape[1]))
    share = min(1.0, len(logits) / count)
    return (1 - share) * old.to(mean) + share * mean, (1 - share) * old_sureness + share * sureness, count


def _means(logits: Tensor) -> tuple[Tensor, float]:
    """The mean prediction and the mean entropy of a batch."""
    return logits.softmax(1).mean(0), entropy(logits).nan_to_num().mean().item()


def _information(mean: Tensor, sureness: float, images: int) -> float:
    """From 0 to 1; one image alone cannot be told from others."""
    most = math.log(min(images, len(mean)))
    if most == 0:
        return 0.0
    variety = float(torch.special.entr(mean).sum())
    return min(1.0, max(0.0, (variety - sureness) / most))
