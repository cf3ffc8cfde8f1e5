"""Self-supervised tasks, one file each: images changed in a way that a head must tell from the features."""

from abc import ABC, abstractmethod
from typing import cast

import torch
from torch import Tensor, nn

from domainadaptor import registry


class Task(nn.Module, ABC):
    """A head on the network's features, and the puzzle that it solves."""

    weight: float = 1.0  # of its loss beside the classification's

    @abstractmethod
    def examples(self, images: Tensor, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        """Changed images and how each was changed, as a class number."""

    @abstractmethod
    def forward(self, features: Tensor) -> Tensor:
        """Logits of how each image was changed."""


def make_task(name: str, width: int) -> Task:
    """The task of that name, for features of that width."""
    return cast(Task, registry.find("domainadaptor.tasks", "task", name)(width))
