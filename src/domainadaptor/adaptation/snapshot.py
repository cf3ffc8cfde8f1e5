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
        self._parameters = list(network.parameters())
        self._written: list[tuple[nn.Parameter, Tensor]] | None = None

    @property
    def knows(self) -> bool:
        """Whether the first batch is over."""
        return self._written is not None

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """Guard the parameters during one batch."""
        if self._written is not None:
            try:
                yield
            finally:
                self._restore()
            return
        shared = [p.detach() for p in self._parameters]
        for parameter, value in zip(self._parameters, shared, strict=True):
            parameter.data = value.clone()
        versions = [p._version for p in self._parameters]
        try:
            yield
        finally:
            written = []
            for parameter, value, version in zip(self._parameters, shared, versions, strict=True):
                if parameter._version != version or not torch.equal(parameter.detach(), value):
                    written.append((parameter, value.clone()))
                else:
                    parameter.data = value
            self._written = written
            self._restore()

    def _restore(self) -> None:
        for parameter, value in self._written or ():
            parameter.data.copy_(value)
