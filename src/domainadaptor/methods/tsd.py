"""TSD: features learn to agree, as class prototypes see them, with the head. Wang et al., CVPR 2023."""

from collections.abc import Sequence
from functools import partial
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from domainadaptor.adaptation.adaptive_network import AdaptiveNetwork
from domainadaptor.adaptation.adaptor import Adaptation, Adaptor
from domainadaptor.adaptation.descent import take_step
from domainadaptor.adaptation.features import find_head
from domainadaptor.adaptation.learning import LearningAdaptor
from domainadaptor.adaptation.logits import finite, in_loss_precision
from domainadaptor.adaptation.losses import entropy
from domainadaptor.adaptation.optimizers import optimizer_called
from domainadaptor.adaptation.state import KeptOptimizer, OptimizerFactory, Part
from domainadaptor.catalog import method
from domainadaptor.norms.batch_only import batch_only
from domainadaptor.option_types import (
    Count,
    Head,
    LearningRate,
    Momentum,
    NonNegative,
    Optimizer,
    Predict,
    ResetEvery,
    Variance,
)

__all__ = ["tsd"]


class _Seen(NamedTuple):
    """Features with what the head made of them, one row each."""

    features: Tensor  # (M, D)
    probabilities: Tensor  # (M, K)
    entropy: Tensor  # (M,)
    label: Tensor  # (M,)


def _seen(features: Tensor, logits: Tensor) -> _Seen:
    return _Seen(features, logits.softmax(1), entropy(logits), logits.argmax(1))


class Supports(Part):
    """The surest features of every class; at first, the rows of the head.

    Args:
        keep: How many features of each class stay, those of the lowest entropy; None keeps all.
    """

    def __init__(self, keep: int | None) -> None:
        self.keep = keep
        self._start: _Seen | None = None
        self.held: _Seen | None = None

    @torch.no_grad()
    def start_from(self, head: nn.Linear) -> None:
        """Begins with the rows of a head, labeled by the head itself."""
        rows = in_loss_precision(head.weight.detach())
        bias = None if head.bias is None else in_loss_precision(head.bias.detach())
        self._start = _seen(rows.clone(), F.linear(rows, rows, bias))

    @torch.no_grad()
    def add(self, features: Tensor, logits: Tensor) -> _Seen:
        """Takes a batch in, keeps the surest of each class, and returns what is held now."""
        assert self.held is not None
        fresh = _seen(features.detach(), logits.detach())
        every = _Seen(*(torch.cat([old.to(new), new]) for old, new in zip(self.held, fresh, strict=True)))
        if self.keep is not None:
            order = every.entropy.argsort(stable=True)
            chosen = [order[every.label[order] == k][: self.keep] for k in range(every.probabilities.shape[1])]
            every = _Seen(*(part[torch.cat(chosen)] for part in every))
        self.held = every
        return every

    def reset(self) -> None:
        """The head's rows alone."""
        self.held = self._start

    def memory(self) -> _Seen | None:
        """What is held, which is replaced and never written to."""
        return self.held

    def recall(self, memory: _Seen | None) -> None:
        """Holds that again."""
        self.held = memory


class _Tsd(LearningAdaptor):
    """Each batch: take its features in, make prototypes of the surest, step toward agreement with the head."""

    def __init__(
        self,
        network: nn.Module,
        *,
        variance: Variance,
        keep: int | None,
        divergence: str,
        agree: bool,
        lam: float,
        neighbors: int,
        optimizer: OptimizerFactory,
        head: str | None,
        reset_every: int | None,
        predict: str,
    ) -> None:
        super().__init__(network, reset_every=reset_every)
        self._norm = partial(batch_only, variance=variance)
        self._supports = Supports(keep)
        self._divergence, self._agree, self._lam, self._neighbors = divergence, agree, lam, neighbors
        self._optimizer = KeptOptimizer(optimizer)
        self._head = head or ""
        self._predict_after = predict == "after"
        self._rebuild()

    def _build(self) -> AdaptiveNetwork:
        network = AdaptiveNetwork(self.source, norm=self._norm, learns="all", others=True, head=self._head)
        head = self.source.get_submodule(find_head(self.source, self._head or None))
        assert isinstance(head, nn.Linear)
        self._supports.start_from(head)
        return network

    def _parts(self) -> Sequence[Part]:
        return self._supports, self._optimizer

    def _learn(self, images: Tensor) -> Adaptation:
        logits = before = self._first_pass(images, grad=True)
        alpha, note = self._main.alphas(), self._main.single_note()
        if not finite(before):
            why = "the logits under batch statistics are not finite"
            return self._fall_back(images, self._run_source(images), alpha, why)
        assert self._main.tap is not None
        loss = self._loss(in_loss_precision(self._main.tap.of(before)), in_loss_precision(before))
        if loss is not None:
            why_not = take_step(loss, self._main.learnable(), self._optimizer)
            if why_not is not None:
                return self._fall_back(images, before, alpha, why_not)
            if self._predict_after:
                with torch.no_grad():
                    logits = self._pass(images)
        value = None if loss is None else loss.item()
        return Adaptation(logits.detach(), before.detach(), value, alpha, note)

    def _loss(self, features: Tensor, logits: Tensor) -> Tensor | None:
        held = self._supports.add(features, logits)
        with torch.no_grad():
            directions = F.normalize(held.features, dim=1)
            members = F.one_hot(held.label, logits.shape[1]).to(directions)
            prototypes = F.normalize(members.T @ directions, dim=1)
        # The authors' F.normalize(z, 1) is a norm of order 1 along dimension 1; cosines need the order 2.
        similarity = F.normalize(features, dim=1) @ prototypes.T
        own = logits.detach().log_softmax(1)
        theirs = similarity.log_softmax(1)
        # Of the other arguments, the authors' program takes the softmax of probabilities, a second one.
        one, other = (own, theirs) if self._divergence == "head" else (theirs, own)
        terms = (one.exp() * (one - other)).sum(1)
        if self._lam:
            terms = terms + self._lam * self._local(features.detach(), logits, held, directions)
        if self._agree:
            terms = terms[own.argmax(1) == similarity.detach().argmax(1)]
        return terms.mean() if len(terms) else None

    def _local(self, features: Tensor, logits: Tensor, held: _Seen, directions: Tensor) -> Tensor:
        """How far each prediction is from those of its nearest features, weighed by how near they are."""
        # The program has a minus sign before this term and logits in it, and leaves it out by default: minus would
        # drive neighbors apart, and the paper brings them together.
        near, at = (F.normalize(features, dim=1) @ directions.T).topk(min(self._neighbors, len(directions)), dim=1)
        gaps = (logits.softmax(1).unsqueeze(1) - held.probabilities[at]).square().sum(2)
        return (near * gaps).mean(1)

    def _catch_up(self, images: Tensor) -> None:
        with torch.no_grad():
            self._pass(images)


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
    keep: Count | None = 100,
    divergence: Literal["head", "prototypes"] = "head",
    agree: bool = False,
    lam: NonNegative = 0.0,
    neighbors: Count = 3,
    lr: LearningRate = 1e-4,
    optimizer: Optimizer = "adam",
    momentum: Momentum = 0.9,
    reset_every: ResetEvery = None,
    predict: Predict = "before",
    variance: Variance = "biased",
    head: Head = None,
) -> Adaptor:
    """Align features with prototypes of confident features.

    Args:
        network: Any trained network with norm layers and a linear head; batch norms use batch statistics.
        keep: Features stored per class, those with the lowest entropy; None stores all.
        divergence: "head" is KL from the head's prediction to the prototypes', "prototypes" the reverse, as in the
            authors' program.
        agree: Learn only from images for which head and prototypes predict the same class.
        lam: Weight of the local term, which pulls predictions of similar features together; 0 in the authors' program.
        neighbors: Stored features that the local term compares each image with.
    """
    return _Tsd(
        network,
        variance=variance,
        keep=keep,
        divergence=divergence,
        agree=agree,
        lam=float(lam),
        neighbors=int(neighbors),
        optimizer=optimizer_called(optimizer, lr=lr, momentum=momentum),
        head=head,
        reset_every=reset_every,
        predict=predict,
    )
