"""Base class of training algorithms: one update from one labeled batch per source domain."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.optim import Optimizer

from domainadaptor.lab.data.loaders import DomainBatch
from domainadaptor.lab.networks.heads import find_head
from domainadaptor.lab.networks.statistics import frozen_statistics
from domainadaptor.lab.training.distributed import average_gradients


@dataclass(frozen=True)
class OptimizerSettings:
    """Settings of the outer optimizer, and the number of classes."""

    classes: int
    lr: float = 1e-3
    head_lr: float = 10.0  # factor of lr for layers that were not pretrained
    momentum: float = 0.9
    weight_decay: float = 5e-4


class Algorithm(nn.Module, ABC):
    """Trains a network. A subclass writes `update`, and adds what it trains besides the network to `heads`.

    Options become attributes.
    """

    rounds = 1  # batches per domain and update
    adapts = False  # whether it adapts to a batch before predicting it

    def __init__(self, network: nn.Module, settings: OptimizerSettings, **options: Any) -> None:
        super().__init__()
        for name, value in options.items():
            setattr(self, name, value)
        self.network = network
        self.settings = settings
        self.head = find_head(network, settings.classes)
        self.heads = nn.ModuleDict()  # saved in the checkpoint, for adaptation

    @abstractmethod
    def update(self, batches: Sequence[DomainBatch], draw: torch.Generator) -> dict[str, float]:
        """Learn from one batch per domain; return numbers for the log, including "loss" and "accuracy"."""

    def predict(self, images: Tensor) -> Tensor:
        """Return the logits of images of one domain, by which weights are selected."""
        return self.network(images)  # type: ignore[no-any-return]

    def joint_logits(self, batches: Sequence[DomainBatch]) -> Tensor:
        """Return the logits of one batch per domain in one pass, as in training."""
        return self.network(concatenate(batches)[0])  # type: ignore[no-any-return]

    def before_validation(self, rounds: Iterable[Sequence[DomainBatch]], steps: int) -> None:
        """Prepare the weights for validation, `steps` rounds of batches after the last one."""
        return

    @cached_property
    def optimizer(self) -> Optimizer:
        """The outer optimizer, made on first use: a subclass may add heads until then."""
        s = self.settings
        return torch.optim.SGD(
            self._groups(), lr=s.lr, momentum=s.momentum, weight_decay=s.weight_decay, nesterov=s.momentum > 0
        )

    def _groups(self) -> list[dict[str, Any]]:
        """Return the parameter groups: the backbone, and the head and extra heads at a higher rate."""
        fresh, factor = self._fresh(), self.settings.head_lr
        known = set(map(id, fresh))
        body = [p for p in self.network.parameters() if id(p) not in known]
        return [{"params": body, "factor": 1.0}, {"params": fresh, "lr": self.settings.lr * factor, "factor": factor}]

    def _fresh(self) -> list[nn.Parameter]:
        """Return the parameters that were not pretrained."""
        return [*self.network.get_submodule(self.head).parameters(), *self.heads.parameters()]

    def set_lr(self, lr: float) -> None:
        """Set the base learning rate."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group["factor"]

    def step(self, loss: Tensor, optimizer: Optimizer | None = None) -> None:
        """Take one step, of the outer optimizer by default."""
        optimizer = optimizer or self.optimizer
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        average_gradients(self.parameters())
        optimizer.step()

    def resume_state(self) -> dict[str, Any]:
        """Return everything that a later process needs to resume."""
        return {"modules": self.state_dict(), "optimizer": self.optimizer.state_dict()}

    def resume(self, state: dict[str, Any]) -> None:
        """Resume from such a state."""
        self.load_state_dict(state["modules"])
        self.optimizer.load_state_dict(state["optimizer"])

    def functional_logits(self, parameters: Mapping[str, Tensor], images: Tensor) -> Tensor:
        """Return the logits with some parameters replaced; running statistics are unchanged."""
        with frozen_statistics(self.network):
            return functional_call(self.network, dict(parameters), (images,))  # type: ignore[no-any-return]

    def inner_step(
        self, parameters: Mapping[str, Tensor], images: Tensor, loss: Callable[[Tensor], Tensor], lr: float
    ) -> dict[str, Tensor]:
        """Return the parameters after a step on a loss of the logits, as a differentiable function."""
        gradients = torch.func.grad(lambda p: loss(self.functional_logits(p, images)))(dict(parameters))
        return {name: p - lr * gradients[name] for name, p in parameters.items()}


def concatenate(batches: Sequence[DomainBatch]) -> tuple[Tensor, Tensor]:
    """Return images and labels of all domains as one batch."""
    return torch.cat([b.images for b in batches]), torch.cat([b.labels for b in batches])


def accuracy(logits: Tensor, labels: Tensor) -> float:
    """Return the accuracy in percent."""
    return 100 * float((logits.argmax(1) == labels).float().mean())
