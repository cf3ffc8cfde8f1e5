"""The buffers of a network as they were, for forwards that write to them."""

from torch import Tensor, nn


class Snapshot:
    """Puts back every buffer of the given networks that was written to or replaced."""

    def __init__(self, *networks: nn.Module) -> None:
        self._kept: list[tuple[nn.Module, str, Tensor, Tensor, int]] = [
            (module, name, buffer, buffer.clone(), buffer._version)
            for network in networks
            for module in network.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]

    def restore(self) -> None:
        """Costs a comparison per buffer where nothing happened."""
        for at, (module, name, buffer, value, version) in enumerate(self._kept):
            if module._buffers.get(name) is not buffer or buffer._version != version:
                buffer.copy_(value)
                module._buffers[name] = buffer
                self._kept[at] = (module, name, buffer, value, buffer._version)
