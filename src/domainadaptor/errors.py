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
    """Base class of all errors of this library.

    Example:
        >>> try:
        ...     da.adapt(network, "adabn", lr=0.1)
        ... except da.AdaptationError as error:
        ...     print(error)
        adabn has no option 'lr'; ...
    """


class AdaptationWarning(UserWarning):
    """The predictions may be worse than the source model's. A subclass for each cause.

    Example:
        >>> import warnings
        >>> warnings.simplefilter("ignore", da.AdaptationWarning)
        >>> da.adapt(network, "adabn").adapt(images[:1]).warnings
        (SmallBatch(...),)
    """


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
    """An option name, value or combination is invalid: change the call.

    Example:
        >>> try:
        ...     da.adapt(network, "tent", steps=0)
        ... except da.BadOption as error:
        ...     print(error)
        steps=0: expected a whole number of at least 1
    """


class UnsupportedNetwork(AdaptationError, ValueError):
    """The network cannot be adapted as it is: change the network or the method.

    Example:
        >>> try:
        ...     da.adapt(torch.nn.Linear(3, 2), "tent")
        ... except da.UnsupportedNetwork as error:
        ...     print(type(error).__name__)
        UnsupportedNetwork
    """


class BadBatch(AdaptationError, ValueError):
    """The batch cannot be used: change the data.

    Example:
        >>> try:
        ...     da.adapt(network)(images[0])
        ... except da.BadBatch as error:
        ...     print(error)
        The images have shape (3, 16, 16), but the layer ... takes (N, 3, H, W). One image? Pass image[None].
    """


class BadFile(AdaptationError, ValueError):
    """A file is missing, corrupt, unsafe or does not fit: pass another file.

    Example:
        >>> try:
        ...     raise da.BadFile("weights.pt: expected a safetensors file")
        ... except da.AdaptationError as error:
        ...     print(error)
        weights.pt: expected a safetensors file
    """


class SourceChanged(AdaptationError, RuntimeError):
    """The network was edited after it was wrapped: wrap it again.

    Example:
        >>> adaptor = da.adapt(network)
        >>> with torch.no_grad():
        ...     _ = network[1].weight.mul_(2)
        >>> try:
        ...     adaptor(images)
        ... except da.SourceChanged as error:
        ...     print(error)
        The network was edited ...
    """


class MissingExtra(AdaptationError, ImportError):
    """An optional package is not installed: install the extra that the message names."""


def listed(names: Sequence[object], most: int = 5) -> str:
    """Join up to `most` names for a message."""
    return ", ".join(map(str, names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")
