"""Undo what a forward writes to the network that it belongs to."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from domainadaptor.norms.base import AdaptiveNorm

_ABSENT = object()


class Snapshot:
    """Restore every buffer and attribute of networks that a forward wrote to, replaced or added."""

    def __init__(self, *networks: nn.Module) -> None:
        found = dict.fromkeys(module for network in networks for module in network.modules())
        modules = [module for module in found if not isinstance(module, AdaptiveNorm)]
        self._buffers: list[tuple[nn.Module, str, Tensor, Tensor, int]] = [
            (module, name, buffer, buffer.clone(), buffer._version)
            for module in modules
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]
        self._names = [(module, set(module._buffers)) for module in modules]
        # Layers of torch.nn write to no attributes; comparing all of them would take time.
        self._attributes = [(m, dict(vars(m))) for m in modules if not type(m).__module__.startswith("torch.nn.")]

    def restore(self) -> None:
        """Restore what was written to; otherwise only compare versions and identities."""
        for at, (module, name, buffer, value, version) in enumerate(self._buffers):
            if module._buffers.get(name) is not buffer or buffer._version != version:
                buffer.copy_(value)
                module._buffers[name] = buffer
                self._buffers[at] = (module, name, buffer, value, buffer._version)
        for module, names in self._names:
            if len(module._buffers) > len(names):
                for added in set(module._buffers) - names:
                    del module._buffers[added]
        for module, held in self._attributes:
            if any(held.get(name, _ABSENT) is not value for name, value in vars(module).items()):
                for added in set(vars(module)) - set(held):
                    del vars(module)[added]
                vars(module).update(held)


class ParameterGuard:
    """Protect parameters that share storage with the user's network from a forward that writes to them.

    The first batch runs with copies of all parameters. Those that it wrote to stay copies and are restored after every
    batch; the others share storage again.
    """

    def __init__(self, network: nn.Module) -> None:
        self._shared = [(p, p.detach()) for p in network.parameters()]  # with the user's storage
        self._copied = False  # whether parameters are copies now
        self._written: list[tuple[nn.Parameter, Tensor]] | None = None  # with their values

    @property
    def knows(self) -> bool:
        """Whether a batch was finished."""
        return self._written is not None

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """Guard the parameters during one batch. If it raises, the caller has to call `restore`."""
        if self._written is None:
            self._copied = True
            for p, shared in self._shared:
                p.data = shared.clone()
            versions = [p._version for p, _ in self._shared]
            yield
            self._written = [
                (p, shared.clone())
                for (p, shared), version in zip(self._shared, versions, strict=True)
                if p._version != version or not torch.equal(p.detach(), shared)
            ]
        else:
            yield
        self.restore()

    def restore(self) -> None:
        """Give the parameters back their storage and values."""
        written = self._written or []
        if self._copied:
            for p, shared in self._shared:
                if not any(p is one for one, _ in written):
                    p.data = shared
            self._copied = False
        for p, value in written:
            p.data.copy_(value)
