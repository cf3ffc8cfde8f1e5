"""Self-supervised tasks, one per file: a head predicts from the features how images were transformed."""

from abc import ABC, abstractmethod
from typing import cast

import torch
from torch import Tensor, nn

from domainadaptor import registry


class Task(nn.Module, ABC):
    """A self-supervised task with its head on the network's features."""

    weight: float = 1.0  # of its loss, relative to the classification loss
    head: nn.Module

    @abstractmethod
    def examples(self, images: Tensor, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return transformed images and their labels."""

    def forward(self, features: Tensor) -> Tensor:
        """Return the logits of the transformations."""
        return self.head(features)  # type: ignore[no-any-return]


def make_task(name: str, width: int) -> Task:
    """Build a task by name, for features of a width."""
    return cast(Task, registry.find("domainadaptor.tasks", "task", name)(width))
