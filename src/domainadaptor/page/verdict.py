"""Sentences on a run: did adapting help, and can that be trusted?"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from domainadaptor.adaptation.estimate import Expectation, Outcome

_CHANCE = 0.05  # two-sided; below, a difference is more than chance explains
_ONE_ANSWER = 0.9  # share of the images
_FEW = 16  # images
_TONES: dict[Outcome, Literal["good", "bad", "open"]] = {"better": "good", "same": "open", "worse": "bad"}


@dataclass(frozen=True)
class AnswerPair:
    """The answer for one image before and after adapting, and the right one if it is known."""

    source: str
    adapted: str
    label: str = ""


@dataclass(frozen=True)
class Verdict:
    """A headline, what was measured, and reasons for doubt."""

    tone: Literal["good", "bad", "open"]
    headline: str
    sentences: tuple[str, ...]
    warnings: tuple[str, ...]


def judge(
    pairs: Sequence[AnswerPair], batch: int, notes: Iterable[str] = (), expected: Expectation | None = None
) -> Verdict:
    """Return what can be said about a run.

    Args:
        pairs: The answers.
        batch: How many images were adapted together.
        notes: What the adaptor reported.
        expected: What can be expected without labels, if that is known for the method.
    """
    labeled = [pair for pair in pairs if pair.label]
    judged = _with_labels(labeled) if labeled else _without_labels(pairs, expected)
    tone, headline, sentences = judged
    if labeled and len(labeled) < len(pairs):
        sentences.append(f"The class of the other {_images(len(pairs) - len(labeled))} is not known.")
    warnings = [*_warnings(pairs, tone), *([_small(batch)] if batch < _FEW else []), *(f"{note}." for note in notes)]
    return Verdict(tone, headline, tuple(sentences), tuple(warnings))


_Judged = tuple[Literal["good", "bad", "open"], str, list[str]]


def _with_labels(pairs: Sequence[AnswerPair]) -> _Judged:
    before, after = (sum(answer == p.label for p, answer in zip(pairs, given, strict=True)) for given in _both(pairs))
    fixed = sum(pair.source != pair.label == pair.adapted for pair in pairs)
    spoiled = sum(pair.source == pair.label != pair.adapted for pair in pairs)
    size = len(pairs)
    sentences = [
        f"Of {_images(size)} with a known class, {before} were right before adapting and {after} after: "
        f"adapting corrected {fixed} and spoiled {spoiled}."
    ]
    if not fixed and not spoiled:
        return "open", "Adapting made no difference to the accuracy.", sentences
    if chance(fixed, spoiled) > _CHANCE:
        sentences.append("Chance alone could explain a difference this small. More images would tell.")
        return "open", "No clear difference.", sentences
    sentences.append(
        "The difference is larger than chance explains. It holds for images like these; for others, test again."
    )
    return ("good", "Adapting helped.", sentences) if after > before else ("bad", "Adapting did harm.", sentences)


def _without_labels(pairs: Sequence[AnswerPair], expected: Expectation | None) -> _Judged:
    changed = sum(pair.source != pair.adapted for pair in pairs)
    if not changed:
        return (
            "open",
            "Adapting changed no answer.",
            [f"All {_images(len(pairs))} got the same answer before and after."],
        )
    if expected is not None and len(pairs) >= _FEW:
        tone: Literal["good", "bad", "open"] = _TONES[expected.outcome]
        return tone, expected.headline, [f"It changed {changed} of {len(pairs)} answers.", expected.sentence]
    sentence = (
        "Without labels, this cannot be judged: the new answers may be better or worse. Look at the changed ones "
        "below, or choose a folder whose subfolders are named after the classes."
    )
    return "open", f"Adapting changed {changed} of {len(pairs)} answers.", [sentence]


def _warnings(pairs: Sequence[AnswerPair], tone: str) -> list[str]:
    """Return signs that something is wrong, which need no labels."""
    found = []
    size = len(pairs)
    changed = sum(pair.source != pair.adapted for pair in pairs)
    (_, usual), (answer, count) = (Counter(given).most_common(1)[0] for given in _both(pairs))
    right = sum(pair.label == answer for pair in pairs)
    if size >= 8 and count >= _ONE_ANSWER * size and max(usual, right) < _ONE_ANSWER * size:
        found.append(
            f"After adapting, {count} of {_images(size)} get the same answer, “{answer}”. Unless they all show that, "
            "adapting has gone wrong: do not use these answers."
        )
    elif size >= 8 and changed > size / 2 and tone != "good":
        found.append(
            f"Most answers changed ({changed} of {size}). Either these images are far from what the network was "
            "trained on, or adapting has gone wrong. Check some of them yourself."
        )
    return found


def _small(batch: int) -> str:
    return (
        f"Only {_images(batch)} adapted together. Most methods measure the images of a batch and need {_FEW} or more, "
        "of several classes."
    )


def chance(fixed: int, spoiled: int) -> float:
    """Return how often a fair coin splits the answers that count at least as unevenly (exact sign test)."""
    count = fixed + spoiled
    tail = sum(math.comb(count, k) for k in range(min(fixed, spoiled) + 1))
    return min(1.0, 2 * tail / (1 << count))


def _both(pairs: Sequence[AnswerPair]) -> tuple[list[str], list[str]]:
    return [pair.source for pair in pairs], [pair.adapted for pair in pairs]


def _images(count: int) -> str:
    return f"{count} image{'' if count == 1 else 's'}"
