"""The untouched network, as the method that every other one is compared with."""

from torch import nn

from domainadaptor.adaptation.adaptor import Adaptor
from domainadaptor.adaptation.step import StepAdaptor
from domainadaptor.method_card import about

__all__ = ["source"]


@about("-", 0, "none", forwards="1")
def source(network: nn.Module) -> Adaptor:
    """The network as it is, in eval mode: no adaptation."""
    return StepAdaptor(network)
