"""CollapseGuard: detects from predictions and weights that an online adaptor is collapsing."""

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
_DRIFT = 0.006, 0.02  # allowed drift of the weights, relative to their size, under fixed and under batch statistics
_MOST_DRIFT = 0.3  # allowed in any case
_LESS = 0.75  # with less information than this share of the source model's, no drift is allowed
_POOR = 0.2  # with less information than this, predictions are compared with the source model's for the same batch
_FRACTION = 0.25  # less than this share of the source model's information is collapse
_ENOUGH = 8  # images of a batch that can be compared by themselves

Seen = tuple[Tensor, float, int]  # the mean prediction, the mean entropy, how many images


class Drift(NamedTuple):
    """How far weights are from the source model, and under which statistics."""

    far: float  # relative to the size of the source model's
    batch: float  # share of the statistics that comes from the batch itself, from 0 to 1
    follows: bool = False  # whether running statistics follow the stream


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
    """Decide when to go back to the source model: when predictions carry too little information for the drift.

    The information of predictions is the entropy of their mean less their mean entropy, over the last 256 images or
    four times the number of classes, as a share of its maximum. It is 1 for confident and varied predictions and 0 if
    all are alike. Both kinds of collapse, one class for everything and no confidence at all, bring it down. Ordinary
    batches of a working network have 0.4 to 1.

    With information t, weights may drift 0.006 / (1 - t) from the source model, relative to their size. Where layers
    normalize with batch statistics, which undo much of what weights do, the limit is 0.02 / (1 - t)^2. It is never
    more than 0.3. So a network whose predictions stay good keeps learning, while noise, constant images or one class
    at a time stop it before it loses much.

    Under batch statistics, noise or images of one class get confident and varied predictions too. The source model,
    with its own statistics, does not. So t is the lower of both models' information once the weights have drifted
    half as far as any prediction allows, and 0 where the predictions carry less than three quarters of the source
    model's information. On a domain so far away that the source model knows little of it, learning restarts more
    often than needed.

    Whatever the drift, it is also collapse if the information is below 0.2 and, for the batch itself, below a quarter
    of the source model's.

    Running statistics follow the stream wherever it goes. So each batch of eight images or more is compared: if its
    predictions carry less than three quarters of the source model's information, they are replaced and the statistics
    are reset. After noise, most ordinary batches have 0.1 to 0.5 of it; where nothing is wrong, 0.8 and more.

    Example:
        >>> adaptor = da.adapt(network, "tent", guard=True)
        >>> isinstance(adaptor.collapse, da.CollapseGuard)
        True
        >>> adaptor.adapt(images).collapsed
        False
    """

    kept = ("_seen", "_source")
    _seen: Seen | None = None
    _source: Seen | None = None  # the same of the source model's predictions, where it was asked

    def look(self, logits: Tensor, drift: Drift, source: Callable[[], Tensor]) -> str | None:
        """Add the predictions of a batch; return a reason to go back, or None.

        Args:
            logits: The predictions.
            drift: How far the weights are from the source model.
            source: Returns the source model's logits for the batch.
        """
        own = in_loss_precision(logits.detach())
        self._seen = _with(self._seen, own)
        told = information(*self._seen)
        stray = drift.batch * _DRIFT[1] + (1 - drift.batch) * _DRIFT[0]
        asked = None
        doubtful = told < _POOR or not drift.far <= stray / 2
        if doubtful or (drift.follows and len(own) >= _ENOUGH):
            asked = in_loss_precision(source().detach())
        if doubtful and asked is not None:
            self._source = _with(self._source, asked)
        theirs = told if self._source is None else information(*self._source)
        known = min(told, theirs) if told >= _LESS * theirs else 0.0
        limit = min(_MOST_DRIFT, stray / max(1 - known, 1e-6) ** (1 + drift.batch))
        if not drift.far <= limit:  # nor if it is not a number
            return (
                f"the guard went back to the source model: the weights drifted by {drift.far:.3f} of their size; the "
                f"limit is {limit:.3f} with information {told:.2f} in the predictions and {theirs:.2f} in the source "
                "model's"
            )
        if asked is not None and (told < _POOR or drift.follows):
            now, plain = (information(*_means(z), len(z)) for z in (own, asked))
            least = _LESS if drift.follows and len(own) >= _ENOUGH else _FRACTION
            if plain > _POOR and now < least * plain:
                return (
                    f"the guard went back to the source model: the information in the predictions is {now:.2f}, in the "
                    f"source model's {plain:.2f}"
                )
        return None


def _with(seen: Seen | None, logits: Tensor) -> Seen:
    """Add a batch; what is older than the window fades."""
    mean, sureness = _means(logits)
    if seen is None:
        return mean, sureness, len(logits)
    old, old_sureness, count = seen
    count = min(count + len(logits), max(_WINDOW, 4 * logits.shape[1]))
    share = min(1.0, len(logits) / count)
    return (1 - share) * old.to(mean) + share * mean, (1 - share) * old_sureness + share * sureness, count


def _means(logits: Tensor) -> tuple[Tensor, float]:
    """Return the mean prediction and the mean entropy of a batch."""
    return logits.softmax(1).mean(0), entropy(logits).nan_to_num().mean().item()


def information(mean: Tensor, sureness: float, images: int) -> float:
    """Return the information, from 0 to 1; a single image has none."""
    most = math.log(min(images, len(mean)))
    if most == 0:
        return 0.0
    variety = float(torch.special.entr(mean).sum())
    return min(1.0, max(0.0, (variety - sureness) / most))
