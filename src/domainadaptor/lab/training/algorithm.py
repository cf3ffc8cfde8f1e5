"""Algorithm: one training update from one labeled batch per source domain."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from domainadaptor.lab.data.loaders import DomainBatch
from domainadaptor.lab.networks.heads import features_of, find_head, head_width
from domainadaptor.lab.training.distributed import average_gradients


@dataclass(frozen=True)
class OptimizerSettings:
    """What every algorithm is told: how the outer optimizer steps, and the size of the task."""

    classes: int
    lr: float = 1e-3
    head_lr: float = 10.0  # times lr, for layers that were not pretrained
    momentum: float = 0.9
    weight_decay: float = 5e-4


class Algorithm(nn.Module, ABC):
    """Trains a network; a subclass writes `update`, and adds what it trains besides the network to `heads`."""

    rounds = 1  # batches of each domain that an update takes
    adapts = False  # whether it predicts after adapting to the batch

    def __init__(self, network: nn.Module, settings: OptimizerSettings) -> None:
        super().__init__()
        self.network = network
        self.settings = settings
        self.head = find_head(network, settings.classes)
        self.heads = nn.ModuleDict()  # saved with the network, for adaptation
        self._optimizer: Optimizer | None = None

    @abstractmethod
    def update(self, batches: Sequence[DomainBatch], draw: torch.Generator) -> dict[str, float]:
        """Learns from one batch per domain; returns numbers for the log, "loss" and "accuracy" among them."""

    def predict(self, images: Tensor) -> Tensor:
        """Logits of images of one domain as they are meant to be got: what weights are chosen by."""
        return self.network(images)  # type: ignore[no-any-return]

    def joint_logits(self, batches: Sequence[DomainBatch]) -> Tensor:
        """Logits of one batch of each domain in one pass, as in training."""
        return self.network(concatenate(batches)[0])  # type: ignore[no-any-return]

    def before_validation(self, rounds: Iterable[Sequence[DomainBatch]], steps: int) -> None:
        """Whatever the weights need before they are looked at; so many rounds of batches were trained on since."""
        return

    @property
    def optimizer(self) -> Optimizer:
        """The outer optimizer, made when it is first asked for: a subclass may add heads until then."""
        if self._optimizer is None:
            self._optimizer = self._make_optimizer()
        return self._optimizer

    def _make_optimizer(self) -> Optimizer:
        s = self.settings
        return torch.optim.SGD(
            self._groups(), lr=s.lr, momentum=s.momentum, weight_decay=s.weight_decay, nesterov=s.momentum > 0
        )

    def _groups(self) -> list[dict[str, Any]]:
        """The body at the base rate; the head and what is trained besides at a higher one."""
        fresh = self._fresh()
        known = {id(p) for p in fresh}
        body = [p for p in self.network.parameters() if id(p) not in known]
        high = self.settings.lr * self.settings.head_lr
        return [{"params": body, "factor": 1.0}, {"params": fresh, "lr": high, "factor": self.settings.head_lr}]

    def _fresh(self) -> list[nn.Parameter]:
        """What was not pretrained."""
        return [*self.network.get_submodule(self.head).parameters(), *self.heads.parameters()]

    def set_lr(self, lr: float) -> None:
        """A new base rate."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group["factor"]

    def step(self, loss: Tensor) -> None:
        """One step of the outer optimizer down a loss."""
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        average_gradients(self.parameters())
        self.optimizer.step()

    def resume_state(self) -> dict[str, Any]:
        """All that a later process needs to go on."""
        return {"modules": self.state_dict(), "optimizer": self.optimizer.state_dict()}

    def resume(self, state: dict[str, Any]) -> None:
        """Goes on from there."""
        self.load_state_dict(state["modules"])
        self.optimizer.load_state_dict(state["optimizer"])

    def features(self, images: Tensor) -> Tensor:
        """What the head is given for these images, (N, D)."""
        with features_of(self.network, self.head) as features:
            self.network(images)
        return features()

    def width(self) -> int:
        """How many features the head takes."""
        return head_width(self.network, self.head)


def concatenate(batches: Sequence[DomainBatch]) -> tuple[Tensor, Tensor]:
    """All domains as one batch: images and labels."""
    return torch.cat([b.images for b in batches]), torch.cat([b.labels for b in batches])


def accuracy(logits: Tensor, labels: Tensor) -> float:
    """Share of right answers, in percent."""
    return 100 * float((logits.argmax(1) == labels).float().mean())
