"""MLDG: a step on some domains must help on another. Li et al., AAAI 2018."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from domainadaptor.errors import BadOption
from domainadaptor.lab.data.loaders import DomainBatch
from domainadaptor.lab.training.algorithm import Algorithm, OptimizerSettings, accuracy, concatenate
from domainadaptor.option_types import NonNegative

__all__ = ["mldg"]


class MLDG(Algorithm):
    """Holds out one domain per step: loss on the others, plus loss on that one after a step on the others."""

    beta: float
    second_order: bool

    def update(self, batches: Sequence[DomainBatch], draw: torch.Generator) -> dict[str, float]:
        """Take one outer step."""
        if len(batches) < 2:
            raise BadOption("mldg holds out one source domain per step: pass two or more source domains")
        left_out = int(torch.randint(len(batches), (), generator=draw))
        images, labels = concatenate([b for at, b in enumerate(batches) if at != left_out])
        loss, logits = self.outer_loss(images, labels, batches[left_out])
        self.step(loss)
        return {"loss": float(loss.detach()), "accuracy": accuracy(logits.detach(), labels)}

    def outer_loss(self, images: Tensor, labels: Tensor, left_out: DomainBatch) -> tuple[Tensor, Tensor]:
        """Return the sum of both losses, and the logits on the domains of the inner step."""
        lr = float(self.optimizer.param_groups[0]["lr"])
        parameters = dict(self.network.named_parameters())
        logits = self.network(images)  # also for the running statistics
        loss = F.cross_entropy(logits, labels)
        if self.second_order:
            after = self.inner_step(parameters, images, lambda logits: F.cross_entropy(logits, labels), lr)
        else:
            gradients = torch.autograd.grad(loss, list(parameters.values()), retain_graph=True)
            after = {name: p - lr * g for (name, p), g in zip(parameters.items(), gradients, strict=True)}
        later = F.cross_entropy(self.functional_logits(after, left_out.images), left_out.labels)
        return loss + self.beta * later, logits


def mldg(
    network: nn.Module, settings: OptimizerSettings, *, beta: NonNegative = 1.0, second_order: bool = False
) -> Algorithm:
    """Meta-learning: a step on some source domains must help on another.

    The inner step has the outer learning rate.

    Args:
        beta: Weight of the loss on the held-out source domain.
        second_order: Differentiate through the inner step; off in the paper's program.
    """
    return MLDG(network, settings, beta=beta, second_order=second_order)
