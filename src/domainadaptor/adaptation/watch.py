"""Notices that a network was edited after it was wrapped."""

import weakref

import torch
from torch import Tensor, nn

from domainadaptor.errors import SourceChanged

_RUNNING = ("running_mean", "running_var", "num_batches_tracked")


class Watch:
    """Remembers what a network holds; copies of a watch watch nothing, since their network is their own."""

    def __init__(self, network: nn.Module | None) -> None:
        self._network = None if network is None else weakref.ref(network)
        self._held = {} if network is None else _fingerprints(network)

    def check(self) -> None:
        """Raises SourceChanged if the network's values changed; moving it elsewhere is not a change."""
        network = None if self._network is None else self._network()
        if network is None:
            return
        now = _fingerprints(network)
        changed = [name for name, held in self._held.items() if _differs(held, now.get(name))]
        changed += [name for name in now if name not in self._held]
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


_Fingerprint = tuple[torch.dtype, torch.device, torch.Size, tuple[int, int]]


def _fingerprints(network: nn.Module) -> dict[str, _Fingerprint]:
    with torch.no_grad():
        named = [*network.named_parameters(), *network.named_buffers()]
        return {name: (t.dtype, t.device, t.shape, _digest(t)) for name, t in named}


def _digest(tensor: Tensor) -> tuple[int, int]:
    """A hash of all bits. It combines them by exclusive or, so an even number of equal flips needs the first value."""
    if tensor.numel() == 0:
        return 0, 0
    real = torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor.detach()
    first = real[(0,) * real.ndim]
    return int(torch.hash_tensor(real).item()), hash(first.item())


def _differs(held: _Fingerprint, now: _Fingerprint | None) -> bool:
    if now is None or held[2] != now[2]:
        return True
    moved = held[:2] != now[:2]
    return not moved and held[3] != now[3]
