"""ARM: networks trained to be adapted to batches of one domain. Zhang et al., NeurIPS 2021."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from domainadaptor.errors import BadOption, UnsupportedNetwork
from domainadaptor.lab.data.loaders import DomainBatch
from domainadaptor.lab.networks.context import ContextNetwork
from domainadaptor.lab.networks.statistics import batch_statistics, norm_layers
from domainadaptor.lab.training.algorithm import Algorithm, OptimizerSettings, accuracy, concatenate
from domainadaptor.methods.arm import LearnedLoss
from domainadaptor.option_types import Count, Learns, NonNegative
from domainadaptor.options import defaults_of

__all__ = ["arm"]

LEARNED_LOSS = "learned_loss"


class DomainwiseARM(Algorithm):
    """Cross-entropy on one domain at a time, so that norm layers see a single domain, as with adabn."""

    adapts = True

    def update(self, batches: Sequence[DomainBatch], draw: torch.Generator) -> dict[str, float]:
        """Take one step on the mean over domains."""
        logits = [self.network(batch.images) for batch in batches]
        loss = torch.stack([F.cross_entropy(z, b.labels) for z, b in zip(logits, batches, strict=True)]).mean()
        self.step(loss)
        labels = torch.cat([batch.labels for batch in batches])
        return {"loss": float(loss.detach()), "accuracy": accuracy(torch.cat(logits).detach(), labels)}

    def predict(self, images: Tensor) -> Tensor:
        """Return the logits adapted to a batch, like the methods adabn and arm."""
        if len(images) < 2:  # no statistics
            return self.network(images)  # type: ignore[no-any-return]
        with batch_statistics(self.network):
            return self.adapted_logits(images)

    def adapted_logits(self, images: Tensor) -> Tensor:
        """Return the logits adapted to the images, with norm layers that use the statistics of the batch."""
        return self.network(images)  # type: ignore[no-any-return]


class LearnedLossARM(DomainwiseARM):
    """Cross-entropy after one inner step on a learned loss per domain, differentiated through that step."""

    inner_lr: float
    learns: str

    def __init__(self, network: nn.Module, settings: OptimizerSettings, **options: Any) -> None:
        super().__init__(network, settings, **options)
        self.heads[LEARNED_LOSS] = LearnedLoss(settings.classes)
        if not self._learning():
            raise UnsupportedNetwork(
                f"{type(network).__name__} has no batch norm with scale and shift for the inner step; "
                "pass --option learns=all"
            )

    def update(self, batches: Sequence[DomainBatch], draw: torch.Generator) -> dict[str, float]:
        """Take one outer step on the mean over domains."""
        losses, right = [], []
        for batch in batches:
            logits = self.adapted_logits(batch.images)
            losses.append(F.cross_entropy(logits, batch.labels))
            right.append(accuracy(logits.detach(), batch.labels))
        with torch.no_grad():
            self.network(concatenate(batches)[0])  # running statistics, for use without the inner step
        loss = torch.stack(losses).mean()
        self.step(loss)
        return {"loss": float(loss.detach()), "accuracy": sum(right) / len(right)}

    def adapted_logits(self, images: Tensor) -> Tensor:
        """Return the logits after the inner step on the same images."""
        after = self.inner_step(self._learning(), images, self.heads[LEARNED_LOSS], self.inner_lr)
        return self.functional_logits(after, images)

    def _learning(self) -> dict[str, Tensor]:
        norms = {f"{name}.{part}" for name in norm_layers(self.network) for part in ("weight", "bias")}
        return {name: p for name, p in self.network.named_parameters() if self.learns == "all" or name in norms}


class ContextARM(Algorithm):
    """Cross-entropy of all domains in one pass, with one context per domain."""

    def update(self, batches: Sequence[DomainBatch], draw: torch.Generator) -> dict[str, float]:
        """Take one step on the joint batch, whose statistics become the running ones."""
        labels = torch.cat([batch.labels for batch in batches])
        logits = self.joint_logits(batches)
        loss = F.cross_entropy(logits, labels)
        self.step(loss)
        return {"loss": float(loss.detach()), "accuracy": accuracy(logits.detach(), labels)}

    def joint_logits(self, batches: Sequence[DomainBatch]) -> Tensor:
        """Return the logits, with one context per domain."""
        return self.network(concatenate(batches)[0], [len(batch.labels) for batch in batches])  # type: ignore[no-any-return]

    def _fresh(self) -> list[nn.Parameter]:
        return [*super()._fresh(), *self.network.get_submodule("context").parameters()]


def arm(
    network: nn.Module,
    settings: OptimizerSettings,
    *,
    variant: Literal["ll", "bn", "cml"] = "ll",
    inner_lr: NonNegative = 0.1,
    learns: Learns = "norms",
    context: Count = 1,
) -> Algorithm:
    """Train for adaptation: by a learned loss, batch norm or a context network.

    One outer step is taken for all domains together, on the mean of their losses; the paper's program takes a step for
    each domain, one after the other.

    Args:
        variant: "ll", a learned loss; "bn", batch norm on one domain at a time; "cml", a context network.
        inner_lr: Learning rate of the step on the learned loss.
        learns: What that step changes: "norms" as in the paper's program, or "all" as in ARM's.
        context: Channels that the context network adds to the images.
    """
    used = {"ll": ("inner_lr", "learns"), "bn": (), "cml": ("context",)}[variant]
    for name, value in (("inner_lr", inner_lr), ("learns", learns), ("context", context)):
        if name not in used and value != defaults_of(arm)[name]:
            raise BadOption(f"{name}={value!r} has no effect with variant={variant!r}: leave it out")
    if variant == "ll":
        return LearnedLossARM(network, settings, inner_lr=inner_lr, learns=learns)
    if variant == "cml":
        return ContextARM(ContextNetwork(network, context), settings)
    return DomainwiseARM(network, settings)
