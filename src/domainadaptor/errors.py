"""Errors, one class per remedy. Every message says what was expected, what was given and what to do."""

from collections.abc import Sequence

__all__ = [
    "AdaptationError",
    "AdaptationWarning",
    "BadBatch",
    "BadFile",
    "BadOption",
    "FewClasses",
    "LessInformation",
    "MissingExtra",
    "NotLogits",
    "OneAnswer",
    "SmallBatch",
    "SourceChanged",
    "UnsupportedNetwork",
]


class AdaptationError(Exception):
    """Base class of all errors of this library."""


class AdaptationWarning(UserWarning):
    """The predictions may be worse than the source model's. A subclass for each cause."""


class SmallBatch(AdaptationWarning):
    """The batch is too small for the statistics of the method."""


class OneAnswer(AdaptationWarning):
    """All images get the same answer, unlike from the source model."""


class FewClasses(AdaptationWarning):
    """Most answers changed, and classes have vanished from them."""


class LessInformation(AdaptationWarning):
    """Most answers changed, and the predictions carry less information than before."""


class NotLogits(AdaptationWarning):
    """The network returns probabilities instead of logits."""


class BadOption(AdaptationError, ValueError):
    """An option name, value or combination is invalid: change the call."""


class UnsupportedNetwork(AdaptationError, ValueError):
    """The network cannot be adapted as it is: change the network or the method."""


class BadBatch(AdaptationError, ValueError):
    """The batch cannot be used: change the data."""


class BadFile(AdaptationError, ValueError):
    """A file is missing, corrupt, unsafe or does not fit: pass another file."""


class SourceChanged(AdaptationError, RuntimeError):
    """The network was edited after it was wrapped: wrap it again."""


class MissingExtra(AdaptationError, ImportError):
    """An optional package is not installed: install the extra that the message names."""


def listed(names: Sequence[object], most: int = 5) -> str:
    """Join up to `most` names for a message."""
    return ", ".join(map(str, names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")
