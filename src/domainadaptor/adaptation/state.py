"""Stateful: anything of an adaptor that learns or keeps something between batches."""

import copy
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer

OptimizerFactory = Callable[[Iterable[nn.Parameter]], Optimizer]


class Stateful:
    """An object with state. The adaptor resets, saves and restores all of its stateful parts alike.

    A subclass names in `kept` the attributes that are state. Their initial values are class attributes; they are
    replaced, never written to. What has state of its own is listed in `_parts`.

    Example:
        >>> class Counter(da.Stateful):
        ...     \"\"\"Count batches, and start over when the adaptor is reset.\"\"\"
        ...     kept = ("count",)
        ...     count = 0
        >>> counter = Counter()
        >>> counter.count = 3
        >>> counter.reset()
        >>> counter.count
        0
    """

    kept: ClassVar[tuple[str, ...]] = ()

    def _parts(self) -> "Sequence[Stateful]":
        return ()

    def reset(self) -> None:
        """Go back to the initial state."""
        for name in self.kept:
            setattr(self, name, getattr(type(self), name))
        for part in self._parts():
            part.reset()

    def state_dict(self) -> Any:
        """Return a copy of the state."""
        return [getattr(self, name) for name in self.kept], [part.state_dict() for part in self._parts()]

    def load_state_dict(self, state: Any) -> None:
        """Restore what `state_dict` returned."""
        values, parts = state
        for name, value in zip(self.kept, values, strict=True):
            setattr(self, name, value)
        for part, held in zip(self._parts(), parts, strict=True):
            part.load_state_dict(held)

    def end_batch(self) -> None:
        """Drop what only the passes of this batch needed."""
        for part in self._parts():
            part.end_batch()


class LazyOptimizer(Stateful):
    """An optimizer that is created when it is first needed and kept until a reset.

    Args:
        factory: Makes the optimizer from the parameters.
        momentum_only: Whether its steps last for one batch only: parameters go back, momentum and averages stay.

    Example:
        >>> weight = torch.nn.Parameter(torch.ones(1))
        >>> optimizer = da.LazyOptimizer(da.make_optimizer("sgd", lr=0.1, momentum=0.9))
        >>> da.gradient_step(weight.square().sum(), [weight], optimizer)
        >>> weight.item()
        0.800...
    """

    def __init__(self, factory: OptimizerFactory, *, momentum_only: bool = False) -> None:
        self._factory = factory
        self._momentum_only = momentum_only
        self._optimizer: Optimizer | None = None
        self._parameters: list[nn.Parameter] = []
        self._start: list[Tensor] = []
        self._loaded: dict[str, Any] | None = None  # waits for the optimizer to be created

    def over(self, parameters: list[nn.Parameter]) -> Optimizer:
        """Return the optimizer of these parameters, a new one if others were learned before."""
        if self._momentum_only and not self._start:
            self._start = [p.detach().clone() for p in parameters]
        if self._optimizer is None or [id(p) for p in self._parameters] != [id(p) for p in parameters]:
            self._optimizer, self._parameters = self._factory(parameters), parameters
            if self._loaded is not None:
                # A copy, because torch keeps the tensors it is given, and steps write to them.
                self._optimizer.load_state_dict(copy.deepcopy(self._loaded))
        self._loaded = None
        return self._optimizer

    def end_batch(self) -> None:
        """Undo the steps if only momentum is kept."""
        with torch.no_grad():
            for p, start in zip(self._parameters, self._start, strict=False):  # no parameters after a reset
                p.copy_(start)
        self._start = []

    def reset(self) -> None:
        """Forget momentum and averages."""
        self._optimizer, self._parameters, self._loaded, self._start = None, [], None, []

    def state_dict(self) -> dict[str, Any] | None:
        """Return a copy of momentum and averages."""
        return self._loaded if self._optimizer is None else copy.deepcopy(self._optimizer.state_dict())

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Restore momentum and averages; the parameters may be others by then, of the same shapes."""
        self.reset()
        self._loaded = state


class SeededGenerator(Stateful):
    """Random numbers from a seed, on the CPU so that every device draws the same.

    Example:
        >>> random = da.SeededGenerator(0)
        >>> first = torch.rand(2, generator=random.generator)
        >>> random.reset()
        >>> torch.equal(first, torch.rand(2, generator=random.generator))
        True
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.reset()

    def reset(self) -> None:
        """Start from the seed again."""
        self.generator = torch.Generator("cpu").manual_seed(self.seed)

    def state_dict(self) -> Tensor:
        """Return the state of the generator."""
        return self.generator.get_state()

    def load_state_dict(self, state: Tensor) -> None:
        """Restore the state of the generator."""
        self.generator.set_state(state)


def make_optimizer(name: str, *, lr: float, momentum: float) -> OptimizerFactory:
    """Return a factory of "sgd" or "adam"; for Adam, `momentum` is beta1.

    Example:
        >>> make = da.make_optimizer("adam", lr=0.001, momentum=0.9)
        >>> type(make(list(network.parameters()))).__name__
        'Adam'
    """
    if name == "sgd":
        return partial(SGD, lr=lr, momentum=momentum)
    return partial(Adam, lr=lr, betas=(momentum, 0.999))
