"""A network as it was, for forwards that write to what they hold."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from domainadaptor.norms.base import AdaptiveNorm


class Snapshot:
    """Puts back every buffer and every attribute of the given networks that a forward wrote to, replaced or added."""

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
        # torch's own layers keep nothing; looking at all of them would cost time.
        self._attributes = [(module, _attributes(module)) for module in modules if _may_keep(module)]

    def restore(self) -> None:
        """Costs a comparison per tensor where nothing happened."""
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
    """Keeps a forward that writes to its own parameters away from the storage that they share with the user's network.

    Which parameters those are is found out on the first batch, with copies of all of them; they stay copies and are put
    back after every batch, the others share storage again.
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
        """For the time of one batch."""
        if self._written is not None:
            try:
                yield
            finally:
                self._put_back()
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
            self._put_back()

    def _put_back(self) -> None:
        for parameter, value in self._written or ():
            parameter.data.copy_(value)


_ABSENT = object()


def _may_keep(module: nn.Module) -> bool:
    return not type(module).__module__.startswith("torch.nn.")


def _attributes(module: nn.Module) -> dict[str, object]:
    return dict(vars(module))
