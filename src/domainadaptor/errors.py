"""Errors, one class per remedy; every message says what was expected, what came, and what to do."""

__all__ = [
    "AdaptationError",
    "BadBatch",
    "BadFile",
    "BadOption",
    "MissingExtra",
    "SourceChanged",
    "UnsupportedNetwork",
]


class AdaptationError(Exception):
    """Anything that this library refuses or cannot do."""


class BadOption(AdaptationError, ValueError):
    """A name, a value or a combination of options is wrong: change the call."""


class UnsupportedNetwork(AdaptationError, ValueError):
    """The network cannot be adapted as it is: change the network or the method."""


class BadBatch(AdaptationError, ValueError):
    """The batch cannot be used: change the data."""


class BadFile(AdaptationError, ValueError):
    """A file is missing, damaged, unsafe or does not fit: give another file."""


class SourceChanged(AdaptationError, RuntimeError):
    """The network was edited after it was wrapped: wrap it again."""


class MissingExtra(AdaptationError, ImportError):
    """An optional package is not installed: install the extra that the message names."""
