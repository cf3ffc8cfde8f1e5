"""Part: anything of an adaptor that learns or remembers, and can go back."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

OptimizerFactory = Callable[[Iterable[nn.Parameter]], Optimizer]


class Part(ABC):
    """Something with a state: the adaptor resets, settles, copies and restores all of its parts alike."""

    @abstractmethod
    def reset(self) -> None:
        """Goes back to the beginning: nothing learned, nothing remembered."""

    @abstractmethod
    def memory(self) -> Any:
        """A copy of what it learned and remembers."""

    @abstractmethod
    def recall(self, memory: Any) -> None:
        """Goes back to what `memory` gave."""

    def settle(self) -> None:  # noqa: B027
        """Ends a batch: lets go of what only its passes needed."""


class KeptOptimizer(Part):
    """An optimizer that is made when it is first needed, and kept until everything is forgotten."""

    def __init__(self, factory: OptimizerFactory) -> None:
        self._factory = factory
        self._made: Optimizer | None = None
        self._learnable: list[nn.Parameter] = []
        self._waiting: dict[str, Any] | None = None

    def over(self, learnable: list[nn.Parameter]) -> Optimizer:
        """The optimizer of these parameters: the one in use, or a new one where other parameters learn now."""
        if self._made is None or [id(p) for p in self._learnable] != [id(p) for p in learnable]:
            self._made, self._learnable = self._factory(learnable), learnable
            if self._waiting is not None:
                # A copy, because torch takes the very tensors, and steps write to them.
                self._made.load_state_dict(copy.deepcopy(self._waiting))
        self._waiting = None
        return self._made

    def reset(self) -> None:
        """No momentum, no averages."""
        self._made, self._learnable, self._waiting = None, [], None

    def memory(self) -> dict[str, Any] | None:
        """A copy of momentum and averages."""
        return self._waiting if self._made is None else copy.deepcopy(self._made.state_dict())

    def recall(self, memory: dict[str, Any] | None) -> None:
        """Goes back to those; the parameters may be others by then, of the same shapes."""
        self.reset()
        self._waiting = memory


class MomentumAlone(KeptOptimizer):
    """An optimizer whose steps last for one batch: what learned goes back to its start, momentum and averages stay."""

    def __init__(self, factory: OptimizerFactory) -> None:
        super().__init__(factory)
        self._start: list[Tensor] = []

    def over(self, learnable: list[nn.Parameter]) -> Optimizer:
        """The optimizer of these parameters, which are at their start."""
        self._start = [p.detach().clone() for p in learnable]
        return super().over(learnable)

    def settle(self) -> None:
        """Takes the batch's steps back."""
        with torch.no_grad():
            for p, start in zip(self._learnable, self._start, strict=False):  # nothing to take back after a reset
                p.copy_(start)
        self._start = []


class Draws(Part):
    """Random numbers from a seed; on the CPU, so that every device draws the same."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.reset()

    def reset(self) -> None:
        """The same numbers as at first."""
        self.generator = torch.Generator("cpu").manual_seed(self.seed)

    def memory(self) -> Tensor:
        """Which numbers are next."""
        return self.generator.get_state()

    def recall(self, memory: Tensor) -> None:
        """Goes back to those."""
        self.generator.set_state(memory)
