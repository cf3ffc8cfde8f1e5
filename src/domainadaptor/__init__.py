"""Makes a trained image classifier work, at test time, on data it was never trained for."""

from collections.abc import Callable
from typing import Any

from torch import nn

from domainadaptor import registry as _registry
from domainadaptor.adaptation.adaptor import Adaptation as Adaptation
from domainadaptor.adaptation.adaptor import Adaptor as Adaptor
from domainadaptor.adaptation.guard import CollapseGuard as CollapseGuard
from domainadaptor.adaptation.logits import OutputReader as OutputReader
from domainadaptor.adaptation.predict import predict as predict
from domainadaptor.adaptation.step import StepAdaptor as StepAdaptor
from domainadaptor.errors import AdaptationError as AdaptationError
from domainadaptor.errors import BadBatch as BadBatch
from domainadaptor.errors import BadFile as BadFile
from domainadaptor.errors import BadOption as BadOption
from domainadaptor.errors import SourceChanged as SourceChanged
from domainadaptor.errors import UnsupportedNetwork as UnsupportedNetwork
from domainadaptor.method_card import About as About
from domainadaptor.options import check_flag as _check_flag
from domainadaptor.options import check_names as _check_names
from domainadaptor.options import defaults_of as _defaults_of
from domainadaptor.options import meanings_of as _meanings_of

__version__ = "0.1.0"

_METHODS = "domainadaptor.methods"


def adapt(
    network: nn.Module,
    method: str | Callable[..., Adaptor] = "domainadaptor-t",
    *,
    output: OutputReader | None = None,
    guard: bool = False,
    **options: Any,
) -> Adaptor:
    """Wraps a trained network so that it adapts to each batch it predicts; the network itself is never changed.

    Args:
        network: Any trained network with batch normalization, from a batch of images to logits.
        method: A name in `list_methods()`, a function like those, or "package.module:function" of your own.
        output: A function from what the network returns to its logits, where that is neither a tensor, a tuple,
            a dict with "logits" nor an object with `.logits`.
        guard: Whether a method that remembers batches goes back to the source network, and answers a batch with it,
            when predictions and weights look like collapse (`CollapseGuard` has the rule); the result's note says so.
        **options: The method's own, as `domainadaptor methods NAME` lists them.
    """
    if isinstance(method, nn.Module):
        raise BadOption(
            f"the method is a {type(method).__name__}: the network comes first, as in adapt(network, 'adabn')"
        )
    function = _registry.find(_METHODS, "method", method)
    _check_names(function, str(method), options)
    adaptor = function(network, **options)
    if not isinstance(adaptor, Adaptor):
        raise BadOption(f"method {method!r} returned a {type(adaptor).__name__}; expected an Adaptor")
    adaptor.output = output
    _check_flag("guard", guard)
    if guard:
        if adaptor.reset_every == 1:
            raise BadOption(f"guard=True makes no sense with method {method!r}: it forgets after each batch")
        adaptor.collapse = CollapseGuard()
    return adaptor


def list_methods() -> dict[str, str]:
    """Every method's name with one sentence on what it does."""
    return {name: _registry.sentence(function) for name, function in _registry.table(_METHODS).items()}


def about(method: str | Callable[..., Adaptor]) -> About | None:
    """A method's paper, year, kind, needs and cost; None where its function does not say."""
    return getattr(_registry.find(_METHODS, "method", method), "about", None)


def options_of(method: str | Callable[..., Adaptor]) -> dict[str, Any]:
    """A method's options with their defaults."""
    return _defaults_of(_registry.find(_METHODS, "method", method))


def meanings_of(method: str | Callable[..., Adaptor]) -> dict[str, str]:
    """A method's options, each with what it means and which values it takes."""
    return _meanings_of(_registry.find(_METHODS, "method", method))
