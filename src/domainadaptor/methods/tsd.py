"""TSD: self-distillation between class prototypes and the head. Wang et al., CVPR 2023."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import domainadaptor as da
from domainadaptor import method
from domainadaptor import option_types as t
from domainadaptor.methods._supports import Supports
from domainadaptor.methods.tent import descend

__all__ = ["tsd"]


class PrototypeAgreement(da.Objective):
    """The divergence between the head's predictions and those of class prototypes.

    Prototypes are made of the most confident features of every class; at first, of the rows of the head.
    """

    needs_features = True
    kept = ("held",)
    held: Supports | None = None

    def __init__(self, keep: int | None) -> None:
        self.keep = keep

    def __call__(self, network: da.AdaptiveNetwork, images: Tensor, logits: Tensor) -> Tensor:
        """Return the mean over the batch."""
        features = network.features()
        held = self._head(network) if self.held is None else self.held
        self.held = held = held.add(Supports.of(features.detach(), logits.detach()), self.keep)
        with torch.no_grad():
            directions = F.normalize(held.features, dim=1)
            members = F.one_hot(held.labels, logits.shape[1]).to(directions)
            prototypes = F.normalize(members.T @ directions, dim=1)
        # The authors' F.normalize(z, 1) is a norm of order 1 along dimension 1; cosines need the order 2.
        similarity = F.normalize(features, dim=1) @ prototypes.T
        own = logits.detach().log_softmax(1)
        return (own.exp() * (own - similarity.log_softmax(1))).sum(1).mean()

    @torch.no_grad()
    def _head(self, network: da.AdaptiveNetwork) -> Supports:
        """Return the rows of the source model's head, labeled by the head itself."""
        assert network.tap is not None
        name = network.tap.name
        rows = da.in_loss_precision(network.start(f"{name}.weight"))
        bias = None if network.tap.head.bias is None else da.in_loss_precision(network.start(f"{name}.bias"))
        return Supports.of(rows.clone(), F.linear(rows, rows, bias))


@method(
    paper="Wang et al., TSD",
    year=2023,
    kind="loss",
    forwards="1 (2 if it predicts after)",
    backwards="1",
    needs=("features and a linear head",),
)
def tsd(
    network: nn.Module,
    *,
    keep: t.Count | None = 100,
    lr: t.LearningRate = 1e-4,
    optimizer: t.Optimizer = "adam",
    momentum: t.Momentum = 0.9,
    reset_every: t.ResetEvery = None,
    predict: t.Predict = "before",
    variance: t.Variance = "biased",
    head: t.Head = None,
) -> da.Adaptor:
    """Align features with prototypes of confident features.

    As the authors' program does by default: without the paper's filter and local term. The features are of any stream:
    hostile batches can cost more than ten points, also with guard=True.

    Args:
        network: Any trained network with norm layers and a linear head; batch norms use batch statistics.
        keep: Features stored per class, those with the lowest entropy; None stores all.
    """
    return descend(
        network,
        PrototypeAgreement(keep),
        norm=partial(da.batch_only, variance=variance),
        learns="all",
        lr=lr,
        optimizer=optimizer,
        momentum=momentum,
        reset_every=reset_every,
        predict=predict,
        head=head,
    )
