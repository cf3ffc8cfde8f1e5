"""Detect that a network was edited after it was wrapped."""

import weakref

import torch
from torch import Tensor, nn

from domainadaptor.errors import SourceChanged, listed

_RUNNING = ("running_mean", "running_var", "num_batches_tracked")
_CHUNK = 1 << 20  # values that are summed at once
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class ChangeDetector:
    """Notice edits of a network's parameters and buffers.

    `check` compares version counters and addresses, which costs microseconds and reads nothing from the device. Only
    where those differ does it compare values, so that moving a network is not an edit. Writes through `.data` leave no
    trace in version counters; `check(full=True)` compares all values.
    """

    def __init__(self, network: nn.Module | None) -> None:
        self._network = None if network is None else weakref.ref(network)
        self._seen = [] if network is None else _versions(network)
        held = {} if network is None else _tensors(network)
        self._held = {name: (t.shape, t.dtype, _checksum(t)) for name, t in held.items()}

    def check(self, full: bool = False) -> None:
        """Raise SourceChanged if values changed.

        Args:
            full: Whether to compare all values even if no version counter moved.
        """
        network = None if self._network is None else self._network()
        if network is None:
            return
        now = _versions(network)
        if now == self._seen and not full:
            return
        tensors = _tensors(network)
        changed = [name for name, held in self._held.items() if name not in tensors or _differs(tensors[name], *held)]
        changed += [name for name in tensors if name not in self._held]
        if changed:
            trained = all(name.rpartition(".")[2] in _RUNNING for name in changed)
            why = "; it ran in train mode, which updates running statistics: call network.eval()" if trained else ""
            raise SourceChanged(
                f"The network was edited after it was wrapped ({listed(changed, 3)}){why}. "
                "Wrap it again with adapt(network, ...), or wrap a deep copy that is not edited."
            )
        self._seen = now

    def __reduce__(self) -> tuple[type["ChangeDetector"], tuple[None]]:
        return ChangeDetector, (None,)  # a copy of an adaptor has a network of its own


def _versions(network: nn.Module) -> list[tuple[int, int, int]]:
    return [
        (id(t), 0 if t.is_inference() else t._version, t.data_ptr() if t.layout == torch.strided else 0)
        for module in network.modules()
        for t in (*module._parameters.values(), *module._buffers.values())
        if t is not None
    ]


def _tensors(network: nn.Module) -> dict[str, Tensor]:
    named = [*network.named_parameters(), *network.named_buffers()]
    return {name: t.detach() for name, t in named if not t.is_quantized and t.layout == torch.strided and t.numel()}


def _differs(tensor: Tensor, shape: torch.Size, dtype: torch.dtype, checksum: int) -> bool:
    if tensor.shape != shape or tensor.dtype == dtype:
        return tensor.shape != shape or _checksum(tensor) != checksum
    if torch.promote_types(dtype, tensor.dtype) != tensor.dtype:
        return False  # converted to fewer digits, which cannot be told from an edit
    return _checksum(tensor.to(dtype)) != checksum


def _checksum(tensor: Tensor) -> int:
    """Return the sum of all bits weighted by odd numbers, modulo 2^64: any edit of one value or swap changes it."""
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    bits = real.contiguous().view(_INTEGERS[real.element_size()]).flatten()
    total = torch.zeros((), dtype=torch.int64, device=bits.device)
    for start in range(0, len(bits), _CHUNK):
        chunk = bits[start : start + _CHUNK].to(torch.int64)
        weights = torch.arange(start, start + len(chunk), device=bits.device).mul_(2).add_(1).mul_(0x9E3779B97F4A7C1)
        total += (chunk * (weights ^ (weights >> 31)).bitwise_or_(1)).sum()  # mixed, so that edits do not cancel
    return int(total)
