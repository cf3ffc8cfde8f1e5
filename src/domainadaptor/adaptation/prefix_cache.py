"""PrefixCache: several passes over one batch compute what comes before the first learning layer only once."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from domainadaptor.norms.base import AdaptiveNorm
from domainadaptor.norms.mixed import MixedNorm
from domainadaptor.norms.tuned import TunedNorm

_REPEATABLE = (MixedNorm, TunedNorm)  # norms whose passes leave nothing behind but their uses
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


class PrefixCache:
    """Cache the input of a network and the outputs of modules before anything that learns, for one batch.

    A cached output is reused only if nothing wrote to it, once per pass, and only where it is a constant to autograd.
    Some writes leave no trace in version counters, so the first reuse is computed again and compared.
    """

    def __init__(self, network: nn.Module) -> None:
        self._batch: tuple[Tensor, Tensor, int] | None = None  # images, the copy that passes use, its version
        self._same_input: bool | None = None
        self.passes = 0
        self._modules = [_CachedForward(module, self) for module in _before_learning(network)]

    def input(self, images: Tensor) -> Tensor:
        """Start a pass and return a copy of the images, which a forward may write to; the last copy if none did."""
        self.passes += 1
        if self._batch is None:
            copy = images.clone()
            self._batch = images, copy, copy._version
            return copy
        held, copy, version = self._batch
        if held is not images or copy._version != version:
            return images.clone()
        if self._same_input is None:
            self._same_input = torch.equal(copy, images)
        return copy if self._same_input else images.clone()

    @property
    def open(self) -> bool:
        """Whether a batch is being processed."""
        return self._batch is not None

    def release(self) -> None:
        """Drop the batch."""
        self._batch = None
        for module in self._modules:
            module.entry = None


@dataclass
class _Entry:
    inputs: list[tuple[Tensor, int]]  # with their versions
    output: Tensor
    version: int
    state: tuple[object, ...]  # what else the output depends on
    uses: list[list[Any]]  # what the norms inside recorded in the pass
    last_pass: int  # in which it was made or reused


class _CachedForward:
    """Replace a module's forward: return the earlier output of this batch for the same inputs."""

    def __init__(self, module: nn.Module, cache: PrefixCache) -> None:
        self._module = module
        self._cache = cache
        self._norms = [norm for norm in module.modules() if isinstance(norm, _REPEATABLE)]
        self._repeats: bool | None = None  # unknown until the first reuse
        self.entry: _Entry | None = None
        vars(module)["forward"] = self

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        if named or not self._cache.open or self._repeats is False or not all(map(_is_constant, inputs)):
            return self._forward(*inputs, **named)
        if self.entry is None:
            return self._store(inputs)
        entry = self.entry
        if entry.last_pass == self._cache.passes or not self._fits(entry, inputs):
            return self._forward(*inputs)
        entry.last_pass = self._cache.passes
        if self._repeats is None:
            output = self._forward(*inputs)
            self._repeats = isinstance(output, Tensor) and torch.equal(output, entry.output)
            return entry.output if self._repeats else output
        for norm, uses in zip(self._norms, entry.uses, strict=True):
            norm.uses.extend(uses)
        return entry.output

    def _forward(self, *inputs: Any, **named: Any) -> Any:
        return type(self._module).forward(self._module, *inputs, **named)

    def _store(self, inputs: tuple[Tensor, ...]) -> Any:
        before = [(x, x._version) for x in inputs]
        uses = [len(norm.uses) for norm in self._norms]
        y = self._forward(*inputs)
        if isinstance(y, Tensor) and _is_constant(y) and all(x._version == version for x, version in before):
            new = [norm.uses[count:] for norm, count in zip(self._norms, uses, strict=True)]
            self.entry = _Entry(before, y, y._version, self._state(y), new, self._cache.passes)
        return y

    def _state(self, x: Tensor) -> tuple[object, ...]:
        tensors = chain(self._module.parameters(), self._module.buffers())
        return torch.is_autocast_enabled(x.device.type), *(t._version for t in tensors)

    def _fits(self, entry: _Entry, inputs: tuple[Tensor, ...]) -> bool:
        return (
            entry.output._version == entry.version
            and len(inputs) == len(entry.inputs)
            and all(_same(x, *held) for x, held in zip(inputs, entry.inputs, strict=True))
            and self._state(entry.output) == entry.state
        )


def _is_constant(x: object) -> bool:
    return isinstance(x, Tensor) and not x.requires_grad and not x.is_inference()


def _same(x: Tensor, held: Tensor, version: int) -> bool:
    """Compare by value if a function between two modules, such as a relu, made a new tensor; that is cheap."""
    if held._version != version:
        return False
    alike = (x.shape, x.stride(), x.dtype, x.device) == (held.shape, held.stride(), held.dtype, held.device)
    return x is held or (alike and torch.equal(x, held))


def _before_learning(network: nn.Module) -> list[nn.Module]:
    """Return the largest modules registered before the first that learns, and the first convolution."""
    found = dict.fromkeys(_until_learning(network))
    first = next((module for module in network.modules() if type(module) in _CONVOLUTIONS), None)
    if first is not None and not _learns(first) and not any(first is m for top in found for m in top.modules()):
        found[first] = None
    return list(found)


def _until_learning(parent: nn.Module) -> Iterator[nn.Module]:
    for module in parent.children():
        if not _learns(module) and _can_be_cached(module):
            yield module
        elif not isinstance(module, AdaptiveNorm):
            yield from _until_learning(module)
        if _learns(module):
            return


def _learns(module: nn.Module) -> bool:
    return any(p.requires_grad for p in module.parameters())


def _can_be_cached(module: nn.Module) -> bool:
    """Return whether the class defines the forward and all norms inside are repeatable."""
    norms = [norm for norm in module.modules() if isinstance(norm, AdaptiveNorm)]
    own = type(module).forward is not nn.Module.forward and "forward" not in vars(module)
    return own and all(type(norm) in _REPEATABLE for norm in norms)
