"""`adapt`: wrap a trained network in a method."""

from collections.abc import Callable
from typing import Any

from torch import nn

from domainadaptor import registry
from domainadaptor.adaptation.adaptor import Adaptor
from domainadaptor.adaptation.fitting import with_fitting_methods
from domainadaptor.adaptation.guard import CollapseGuard
from domainadaptor.adaptation.logits import OutputReader
from domainadaptor.catalog import DEFAULT_METHOD, METHODS, of_every_method
from domainadaptor.errors import BadOption, UnsupportedNetwork
from domainadaptor.options import coerce_options


def adapt(
    network: nn.Module,
    method: str | Callable[..., Adaptor] = DEFAULT_METHOD,
    *,
    output: OutputReader | None = None,
    multilabel: bool = False,
    guard: bool = False,
    min_batch: int = 1,
    **options: Any,
) -> Adaptor:
    """Wrap a trained network so that it adapts to each batch it predicts; the network itself is never changed.

    Args:
        network: Any trained network with batch normalization, from a batch of images to logits.
        method: A name in `list_methods()`, a function like those, or "package.module:function" of your own.
        output: A function from what the network returns to its logits, where that is neither a tensor, a tuple,
            a dict with "logits" nor an object with `.logits`.
        multilabel: Whether each logit decides on a label of its own, so that losses are binary.
        guard: Whether an online method is reset to the source model, which then predicts the batch, when predictions
            and weights look like collapse (`CollapseGuard` has the rule); the result's note reports it.
        min_batch: Smaller batches are answered by the source model.
        **options: The method's options, as `method_info(method).options` lists them.

    Raises:
        BadOption: There is no such method or option, or a value is not allowed.
        UnsupportedNetwork: The method cannot adapt this network.

    Example:
        >>> adaptor = da.adapt(network)
        >>> adaptor(images).shape
        torch.Size([8, 5])
        >>> da.adapt(network, "tent", guard=True, lr=0.001)
        Adaptor(tent(lr=0.001): 1 of 1 norm layers adapt)
    """
    if isinstance(method, nn.Module):
        raise BadOption(
            f"the method is a {type(method).__name__}: the network comes first, as in adapt(network, 'adabn')"
        )
    function = registry.find(METHODS, "method", method, allow_import=True)
    given = coerce_options(function, options, str(method))
    try:
        adaptor = function(network, **given)
    except UnsupportedNetwork as error:
        raise with_fitting_methods(error, network) from None
    if not isinstance(adaptor, Adaptor):
        raise BadOption(f"method {method!r} returned a {type(adaptor).__name__}; expected an Adaptor")
    name = method if isinstance(method, str) else getattr(method, "__name__", type(method).__name__)
    adaptor.description = f"{name}({', '.join(f'{option}={_shown(value)}' for option, value in given.items())})"
    shared = coerce_options(of_every_method, {"multilabel": multilabel, "guard": guard, "min_batch": min_batch})
    adaptor.output, adaptor.multilabel, adaptor.min_batch = output, shared["multilabel"], shared["min_batch"]
    if guard:
        if adaptor.reset_every == 1:
            raise BadOption(f"guard=True has no effect with method {method!r}, which resets after each batch")
        adaptor.collapse = CollapseGuard()
    return adaptor


def _shown(value: object) -> str:
    """Return a value for `repr`; images and trained tensors would be too long."""
    return repr(value) if value is None or isinstance(value, str | int | float | tuple) else "..."
