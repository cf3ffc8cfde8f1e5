"""Whether adaptation may do harm: predictions are compared with the source model's, without labels."""

import math
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from domainadaptor.adaptation.guard import information
from domainadaptor.adaptation.logits import in_loss_precision
from domainadaptor.adaptation.losses import entropy
from domainadaptor.adaptation.result import Adaptation
from domainadaptor.errors import AdaptationWarning, FewClasses, LessInformation, NotLogits, OneAnswer, SmallBatch

if TYPE_CHECKING:  # it imports this module
    from domainadaptor.adaptation.adaptor import Adaptor

_ENOUGH = 16  # images whose predictions can be compared
_SMALL = (
    "A batch of {images} is too small for batch statistics. Pass {fewest} or more images at a time, or "
    "min_batch={fewest}, with which the source model answers smaller batches."
)
_NOT_LOGITS = (
    "The network returns probabilities, but losses expect logits. Pass output=lambda p: p.clamp(min=1e-12).log()."
)


class Comparison:
    """Compare the answers of an adaptor with the source model's, over any number of batches.

    On a far domain most answers change where adaptation helps too. But then the predictions carry more information
    than the source model's (`CollapseGuard` says what that is) and name more classes. So it looks like harm if most
    answers change and carry less than half of the information, or a quarter change and name less than half of the
    classes.
    """

    def __init__(self) -> None:
        self._images = self._small = self._changed = 0
        self._of_small: SmallBatch | None = None
        self._p: list[Any] = [0.0, 0.0]  # sums over images, of the source model and of the adaptor
        self._entropy = [0.0, 0.0]
        self._answers: tuple[Counter[int], Counter[int]] = Counter(), Counter()

    def add(self, source: Tensor, result: Adaptation) -> None:
        """Add a batch: the source model's logits, (N, K), and the result."""
        self._images += len(source)
        answers: list[list[int]] = []
        for at, logits in enumerate((source, result.logits)):
            wide = in_loss_precision(logits.detach().cpu())
            self._p[at] = self._p[at] + wide.softmax(1).sum(0)
            self._entropy[at] += entropy(wide).nan_to_num().sum().item()
            answers.append(wide.argmax(1).tolist())
            self._answers[at].update(answers[at])
        self._changed += sum(one != other for one, other in zip(*answers, strict=True))
        for warning in result.warnings:
            if isinstance(warning, SmallBatch):
                self._small, self._of_small = self._small + len(source), warning

    def state_dict(self) -> dict[str, Any]:
        """Return everything in plain numbers, lists and text, for JSON."""
        return {
            "counts": [self._images, self._small, self._changed],
            "of_small": None if self._of_small is None else str(self._of_small),
            "p": [p.tolist() if isinstance(p, Tensor) else [] for p in self._p],
            "entropy": list(self._entropy),
            "answers": [list(map(list, answers.items())) for answers in self._answers],
        }

    def merge(self, state: Mapping[str, Any]) -> None:
        """Add the batches of another comparison, from its `state_dict`."""
        images, small, changed = state["counts"]
        self._images, self._small, self._changed = self._images + images, self._small + small, self._changed + changed
        if state["of_small"] is not None:
            self._of_small = SmallBatch(state["of_small"])
        for at, (p, h, answers) in enumerate(zip(state["p"], state["entropy"], state["answers"], strict=True)):
            self._p[at] = self._p[at] + torch.tensor(p or 0.0, dtype=torch.float64)
            self._entropy[at] += h
            self._answers[at].update(dict(map(tuple, answers)))

    def warnings(self, advice: str = "") -> tuple[AdaptationWarning, ...]:
        """Return what looks like harm; that batches are small if most images are in one.

        Args:
            advice: Of the method.
        """
        n = self._images
        found: list[AdaptationWarning] = []
        if self._of_small is not None and 2 * self._small > n:
            found.append(self._of_small)
        if n < _ENOUGH or 4 * self._changed <= n:
            return tuple(found)
        share = f"{self._changed / n:.0%} of {n} answers differ from the source model's"
        theirs, ours = (classes_named(answers) for answers in self._answers)
        if len(self._answers[1]) == 1:
            found.append(OneAnswer(f"All {n} images get the same answer, and {share}.{advice}"))
        elif ours < theirs / 2:
            found.append(FewClasses(f"{share}, and they name {ours:.1f} classes instead of {theirs:.1f}.{advice}"))
        known, left = (information(p / n, h / n, n) for p, h in zip(self._p, self._entropy, strict=True))
        if 2 * self._changed > n and left < known / 2:
            found.append(
                LessInformation(
                    f"{share}, and they carry {left:.2f} of the possible information, not {known:.2f}.{advice}"
                )
            )
        return tuple(found)

    def texts(self, adaptor: "Adaptor") -> tuple[str, ...]:
        """Return the warnings as sentences, with the advice of the adaptor's method."""
        return tuple(map(str, self.warnings(adaptor.watch.advice)))


def classes_named(answers: Counter[int]) -> float:
    """Return how many classes are named: the exponential of the entropy of the answers."""
    total = answers.total()
    return math.exp(sum(count / total * math.log(total / count) for count in answers.values()))


class Watch:
    """Adds warnings to the results of an adaptor, and passes each kind on to Python's `warnings` once.

    The source model predicts the batches 1, 2, 4, 8 and so on as well. What this shows holds until the next of them.
    """

    def __init__(self) -> None:
        self.compares = True  # whether batches are compared; the lab does so itself, with all of them
        self.advice = ""  # of the method
        self._batches = 0
        self._held: tuple[AdaptationWarning, ...] = ()
        self._warned: set[type[AdaptationWarning]] = set()

    def reset(self) -> None:
        """Forget the batches."""
        self._batches, self._held = 0, ()

    def look(self, adaptor: "Adaptor", images: Tensor, result: Adaptation) -> Adaptation:
        """Return the result of a batch with its warnings."""
        norms = list(adaptor._main.norms.values())
        if result.fell_back or (adaptor.accepts == "anything" and not norms):  # the source model answers
            return result
        self._batches += 1
        rows = isinstance(result.logits, Tensor) and result.logits.ndim == 2 and not adaptor.multilabel
        if rows and self.compares and self._batches & (self._batches - 1) == 0:
            compared = Comparison()
            if len(images) >= _ENOUGH:
                compared.add(adaptor._run_source(images), result)
            self._held = compared.warnings(self.advice)
            if adaptor.accepts != "anything" and _are_probabilities(result.before):
                self._held += (NotLogits(_NOT_LOGITS),)
        found = self._held
        fewest = max((norm.fewest for norm in norms if norm.used), default=1)
        if len(images) < fewest:
            found = (small_batch(len(images), fewest), *found)
        for warning in found:
            if type(warning) not in self._warned:
                self._warned.add(type(warning))
                warnings.warn(warning, stacklevel=6)  # the line of `adaptor(images)`
        notes = [*([result.note] if result.note else []), *map(str, found)]
        return replace(result, warnings=found, note="; ".join(notes) or None)


def small_batch(images: int, fewest: int) -> SmallBatch:
    """Return the warning for a batch of fewer images than its statistics need."""
    return SmallBatch(_SMALL.format(images=images, fewest=fewest))


def _are_probabilities(values: Tensor) -> bool:
    return bool((values >= 0).all() & ((values.sum(1) - 1).abs() < 1e-3).all())
