"""MVRML: short trajectories from the same weights, then a step toward their ends. Zhang et al., ECCV 2022."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import Optimizer

from domainadaptor.lab.data.loaders import DomainBatch
from domainadaptor.lab.networks.statistics import reestimate_statistics
from domainadaptor.lab.training.algorithm import Algorithm, OptimizerSettings, accuracy, concatenate
from domainadaptor.option_types import Count, Positive

__all__ = ["mvrml"]


class MVRML(Algorithm):
    """Each trajectory splits the domains at random, and steps on some, then on the rest, several times."""

    trajectories: int
    length: int
    outer_lr: float

    def __init__(self, network: nn.Module, settings: OptimizerSettings, **options: Any) -> None:
        super().__init__(network, settings, **options)
        self.rounds = self.trajectories * self.length
        self._walker = torch.optim.Adam(self._groups(), lr=settings.lr, weight_decay=settings.weight_decay)

    @cached_property
    def optimizer(self) -> Optimizer:
        """The outer optimizer."""
        return torch.optim.SGD(self.network.parameters(), lr=self.outer_lr)

    def set_lr(self, lr: float) -> None:
        """Set the inner rate, and the outer one in proportion."""
        for group in self._walker.param_groups:
            group["lr"] = lr * group["factor"]
        for group in self.optimizer.param_groups:
            group["lr"] = self.outer_lr * (lr / self.settings.lr)

    def update(self, batches: Sequence[DomainBatch], draw: torch.Generator) -> dict[str, float]:
        """Run all trajectories, then take one outer step."""
        domains = len(batches) // self.rounds
        start = [p.detach().clone() for p in self.network.parameters()]
        ends = [torch.zeros_like(p) for p in start]
        losses, right = [], []
        for trajectory in range(self.trajectories):
            for step in range(self.length):
                at = (trajectory * self.length + step) * domains
                loss, share = self._walk(batches[at : at + domains], draw)
                losses.append(loss)
                right.append(share)
            with torch.no_grad():
                for end, p, first in zip(ends, self.network.parameters(), start, strict=True):
                    end += p / self.trajectories
                    p.copy_(first)
        for p, end in zip(self.network.parameters(), ends, strict=True):
            p.grad = p.detach() - end
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return {"loss": sum(losses) / len(losses), "accuracy": sum(right) / len(right)}

    def _walk(self, batches: Sequence[DomainBatch], draw: torch.Generator) -> tuple[float, float]:
        """Step on the first two domains of a random order, then on the others; return mean loss and accuracy."""
        order = torch.randperm(len(batches), generator=draw).tolist()
        split = min(2, max(1, len(order) - 1))
        losses, right = [], []
        for part in (order[:split], order[split:]):
            if not part:
                continue
            images, labels = concatenate([batches[at] for at in part])
            torch.clear_autocast_cache()  # it holds weights from before the last step
            logits = self.network(images)
            loss = F.cross_entropy(logits, labels)
            self.step(loss, self._walker)
            losses.append(float(loss.detach()))
            right.append(accuracy(logits.detach(), labels))
        return sum(losses) / len(losses), sum(right) / len(right)

    def before_validation(self, rounds: Iterable[Sequence[DomainBatch]], steps: int) -> None:
        """Re-estimate the running statistics: no batch has passed through the new weights."""
        reestimate_statistics(self.network, islice(rounds, max(1, steps // 2)), self.joint_logits)

    def resume_state(self) -> dict[str, Any]:
        """Return everything to resume, including the inner optimizer, which continues over trajectories."""
        return super().resume_state() | {"walker": self._walker.state_dict()}

    def resume(self, state: dict[str, Any]) -> None:
        """Resume from such a state."""
        super().resume(state)
        self._walker.load_state_dict(state["walker"])


def mvrml(
    network: nn.Module,
    settings: OptimizerSettings,
    *,
    trajectories: Count = 3,
    length: Count = 3,
    outer_lr: Positive = 0.05,
) -> Algorithm:
    """Step toward the mean end of short trajectories over random domain splits.

    An update takes `trajectories` times `length` batches per domain, so an epoch has fewer updates than with other
    algorithms; the authors' epochs see the images more often instead. The authors apply the head's higher rate and the
    weight decay in the outer step, here the inner steps do. Adam's state is kept over trajectories, as in the authors'
    `mvrml`; their script resets it. Their inner learning rate is 0.001.

    Args:
        trajectories: Number of trajectories that start from the same weights.
        length: Steps per trajectory, each on all domains.
        outer_lr: Fraction of the way to the mean of the ends.
    """
    return MVRML(network, settings, trajectories=trajectories, length=length, outer_lr=outer_lr)
