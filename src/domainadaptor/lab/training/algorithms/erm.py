"""ERM, which the paper calls DeepAll: cross-entropy on all domains together, optionally with tasks."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

from domainadaptor.lab.data.loaders import DomainBatch
from domainadaptor.lab.networks.heads import head_width, logits_and_features
from domainadaptor.lab.networks.statistics import frozen_statistics
from domainadaptor.lab.training.algorithm import Algorithm, OptimizerSettings, accuracy, concatenate
from domainadaptor.tasks import Task, make_task

__all__ = ["erm"]


class ERM(Algorithm):
    """Cross-entropy over all domains, plus the weighted loss of each task on transformed images."""

    def __init__(self, network: nn.Module, settings: OptimizerSettings, tasks: Sequence[str] = ()) -> None:
        super().__init__(network, settings)
        self.heads.update({name: make_task(name, head_width(network, self.head)) for name in tasks})

    def update(self, batches: Sequence[DomainBatch], draw: torch.Generator) -> dict[str, float]:
        """Take one step on the joint batch."""
        images, labels = concatenate(batches)
        logits = self.network(images)
        loss = F.cross_entropy(logits, labels)
        numbers = {"accuracy": accuracy(logits.detach(), labels)}
        for name, task in self.heads.items():
            assert isinstance(task, Task)
            changed, targets = task.examples(images, draw)
            # The running statistics are those of plain images: what the network will see.
            with frozen_statistics(self.network):
                answers = task(logits_and_features(self.network, self.head, changed)[1])
            task_loss = F.cross_entropy(answers, targets)
            loss = loss + task.weight * task_loss
            numbers |= {f"{name}_loss": float(task_loss.detach()), f"{name}_accuracy": accuracy(answers, targets)}
        self.step(loss)
        return {"loss": float(loss.detach()), **numbers}


def erm(network: nn.Module, settings: OptimizerSettings, *, tasks: str | Sequence[str] = ()) -> Algorithm:
    """Minimize the cross-entropy over all source domains (DeepAll).

    Args:
        tasks: Self-supervised tasks trained alongside, each with its own head: "rotation", "jigsaw".
    """
    return ERM(network, settings, (tasks,) if isinstance(tasks, str) else tuple(tasks))
