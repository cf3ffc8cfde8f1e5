"""Notices that a network was edited after it was wrapped."""

import math
import weakref
from typing import NamedTuple

import torch
from torch import Tensor, nn

from domainadaptor.errors import SourceChanged

_RUNNING = ("running_mean", "running_var", "num_batches_tracked")


class Watch:
    """Remembers what a network holds; copies of a watch watch nothing, since their network is their own.

    Every call compares two sums: all bits by exclusive or, which notices the smallest change of a value, and the values
    weighed by place, which notices what cancels in the first: swaps, and pairs of equal changes.
    """

    def __init__(self, network: nn.Module | None) -> None:
        self._network = None if network is None else weakref.ref(network)
        self._held = {} if network is None else {name: _fingerprint(t) for name, t in _tensors(network).items()}

    def check(self) -> None:
        """Raises SourceChanged if the network's values changed; moving it elsewhere is not a change."""
        network = None if self._network is None else self._network()
        if network is None:
            return
        tensors = _tensors(network)
        changed = [name for name, held in self._held.items() if name not in tensors or _differs(held, tensors[name])]
        changed += [name for name in tensors if name not in self._held]
        if changed:
            trained = all(name.rpartition(".")[2] in _RUNNING for name in changed)
            why = "; it was run in train mode, which writes running statistics: call network.eval()" if trained else ""
            more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
            raise SourceChanged(
                f"the network was edited after it was wrapped ({', '.join(changed[:3])}{more}){why}; "
                "wrap it again with adapt(network, ...), or wrap a deep copy that nobody edits"
            )

    def __reduce__(self) -> tuple[type["Watch"], tuple[None]]:
        return Watch, (None,)


class _Fingerprint(NamedTuple):
    shape: torch.Size
    dtype: torch.dtype
    bits: int
    by_place: float
    size: float  # what rounding of that sum is measured by


def _tensors(network: nn.Module) -> dict[str, Tensor]:
    return {name: t.detach() for name, t in [*network.named_parameters(), *network.named_buffers()] if _countable(t)}


def _countable(tensor: Tensor) -> bool:
    return not tensor.is_quantized and tensor.layout == torch.strided and tensor.numel() > 0


def _fingerprint(tensor: Tensor) -> _Fingerprint:
    size = float(_real(tensor).float().norm())
    return _Fingerprint(tensor.shape, tensor.dtype, _bits(tensor), _by_place(tensor), size)


def _differs(held: _Fingerprint, tensor: Tensor) -> bool:
    if held.shape != tensor.shape:
        return True
    if held.dtype != tensor.dtype:
        if torch.promote_types(held.dtype, tensor.dtype) != tensor.dtype:
            return False  # moved to fewer digits, which cannot be told from an edit
        tensor = tensor.to(held.dtype)
    if _bits(tensor) != held.bits:
        return True
    if not math.isfinite(held.by_place) or not math.isfinite(held.size):
        return False
    # Sums differ in their last digits with the number of threads.
    return not math.isclose(_by_place(tensor), held.by_place, rel_tol=0, abs_tol=1e-5 * held.size)


def _bits(tensor: Tensor) -> int:
    return int(torch.hash_tensor(_real(tensor)).item())


def _by_place(tensor: Tensor) -> float:
    values = _real(tensor).reshape(-1).float()
    return float(values @ _weights(len(values), values.device))


_drawn: dict[torch.device, Tensor] = {}


def _weights(count: int, device: torch.device) -> Tensor:
    """Drawn once, so that no two places weigh the same, and as many as the largest tensor needs."""
    held = _drawn.get(device)
    if held is None or len(held) < count:
        draw = torch.Generator().manual_seed(0)
        held = _drawn[device] = torch.rand(max(count, 1 << 16), generator=draw).add_(1).to(device)
    return held[:count]


def _real(tensor: Tensor) -> Tensor:
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return real if real.dtype in _HASHED else real.to(torch.float64 if real.is_floating_point() else torch.int64)


_HASHED = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)
