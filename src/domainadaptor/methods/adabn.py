"""AdaBN at test time: batch statistics instead of source statistics. Li et al., Pattern Recognition 2018."""

from functools import partial

from torch import nn

from domainadaptor import Adaptor, StepAdaptor, batch_only, method
from domainadaptor import option_types as t

__all__ = ["adabn"]


@method(paper="Li et al., AdaBN", year=2018, kind="statistics", forwards="1")
def adabn(network: nn.Module, *, variance: t.Variance = "biased") -> Adaptor:
    """Normalize each batch with its own statistics."""
    return StepAdaptor(network, norm=partial(batch_only, variance=variance))
