"""AdaBN at test time: the statistics of the batch instead of the source's. Li et al., Pattern Recognition 2018."""

from functools import partial

from torch import nn

from domainadaptor.adaptation.adaptor import Adaptor
from domainadaptor.adaptation.step import StepAdaptor
from domainadaptor.method_card import about
from domainadaptor.norms.batch_only import batch_only
from domainadaptor.norms.moments import VARIANCES, Variance
from domainadaptor.options import check_choice

__all__ = ["adabn"]


@about("Li et al., AdaBN", 2018, "statistics", forwards="1")
def adabn(network: nn.Module, *, variance: Variance = "biased") -> Adaptor:
    """Batch statistics in every norm layer, nothing else: each batch is normalized by itself.

    Args:
        network: Any trained network with batch normalization.
        variance: "biased" as batch normalization trains, or "unbiased".
    """
    check_choice("variance", variance, VARIANCES)
    return StepAdaptor(network, norm=partial(batch_only, variance=variance))
