"""AdaptiveNorm: the layer that replaces one norm layer of a copy of the network."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn


class AdaptiveNorm(nn.Module, ABC):
    """Replace one norm layer at test time. It has no train and eval modes.

    A subclass registers the tensors that adaptation changes with `_add_state` and names other state in `kept`. Saving,
    restoring and resetting all of it is done here.

    Args:
        layer: The trained layer.
    """

    learns: tuple[str, ...]  # which of "scale" and "shift" the trained layer has
    kept: ClassVar[tuple[str, ...]] = ()  # attributes that are state too: replaced, never written to
    measured: ClassVar[tuple[str, ...]] = ()  # attributes that last for one batch; None at its end
    batch_share: float = 0.0  # how much of the statistics comes from the batch itself, from 0 to 1
    fewest: int = 1  # images that a batch needs for its statistics
    follows: bool = False  # whether its statistics follow the stream from batch to batch

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.following: float | None = None  # weight of this batch in running statistics, where it is not the usual one
        self.reused = False  # used more than once per pass: neither folded nor stepped
        self.used = True
        self.uses: list[Any] = []  # one entry per use of the layer in the last pass
        self.tensors: dict[str, Tensor] = {}  # what adaptation changes
        self.source_tensors: dict[str, Tensor] = {}  # the same of the source model
        self._trained = (layer,)  # in a tuple, so that it is not a submodule of this layer

    def __getattr__(self, name: str) -> Any:
        """Whatever else a forward or a hook asks of a norm layer (weight, num_features) is the trained layer's."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            trained = self.__dict__.get("_trained")
            if not trained:
                raise
            return getattr(trained[0], name)

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Normalize a batch and append to `uses`."""

    @abstractmethod
    def plain_values(self) -> dict[str, Tensor]:
        """Return the trained layer's tensors with which it repeats the last use of this layer in eval mode."""

    @abstractmethod
    def learned(self) -> dict[str, Tensor]:
        """Return what is kept between batches, by the trained layer's names."""

    def _end_batch(self) -> None:
        """Keep what the passes of the batch measured."""

    @final
    def learnable(self) -> list[nn.Parameter]:
        """Return scale and shift, if the trained layer has them. A layer that is used more than once has none."""
        return [] if self.reused else [getattr(self, name) for name in self.learns]

    @final
    def end_batch(self) -> None:
        """Keep running statistics and drop everything else that the passes measured."""
        self._end_batch()
        self._drop()

    @final
    def restore(self, values: Sequence[Any]) -> None:
        """Restore the values of the attributes in `kept`, also from another device."""
        for name, value in zip(self.kept, values, strict=True):
            setattr(self, name, _moved(value, self.tensors["scale"]))
        self._drop()

    @final
    @torch.no_grad()
    def reset(self) -> None:
        """Go back to the source model."""
        for name, tensor in self.tensors.items():
            tensor.copy_(self.source_tensors[name])
        following = self.following
        self.forget()
        self.following = following  # the batch goes on

    @final
    def forget(self) -> None:
        """Drop all state but the tensors, which the network resets in one go."""
        self.restore([None] * len(self.kept))

    def _add_state(self, *, parameter: bool = False, **values: Tensor) -> None:
        for name, value in values.items():
            tensor = value.detach().clone()
            if parameter:
                self.register_parameter(name, nn.Parameter(tensor, requires_grad=False))
            else:
                self.register_buffer(name, tensor)
            self.tensors[name] = getattr(self, name)
            self.source_tensors[name] = value.detach().clone()

    def _drop(self) -> None:
        self.uses, self.following = [], None
        for name in self.measured:
            setattr(self, name, None)
        for tensor in self.tensors.values():
            tensor.grad = None


def _moved(value: Any, like: Tensor) -> Any:
    if isinstance(value, Tensor):
        return value.to(like)
    if isinstance(value, tuple):
        moved = [_moved(part, like) for part in value]
        return type(value)(*moved) if hasattr(value, "_fields") else tuple(moved)
    return value
