"""The source model, the baseline of every comparison."""

from torch import nn

from domainadaptor import Adaptor, StepAdaptor, method

__all__ = ["source"]


@method(kind="none", forwards="1")
def source(network: nn.Module) -> Adaptor:
    """The source model in eval mode, without adaptation."""
    return StepAdaptor(network)
