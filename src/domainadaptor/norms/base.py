"""What stands in for a norm layer: it learns a scale and a shift, and can go back."""

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn


class AdaptiveNorm(nn.Module, ABC):
    """Stands in for one norm layer at test time; has no train and eval modes."""

    learns: tuple[str, ...]  # "scale", "shift": which of them the trained layer has

    def __init__(self) -> None:
        super().__init__()
        self.reused = False  # more than once in a pass: neither folded nor stepped
        self.used = True

    def __getattr__(self, name: str) -> Any:
        """What a forward or a hook may ask of a norm layer (weight, num_features) is the trained one's."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            trained = self.__dict__.get("_trained")
            if not trained:
                raise
            return getattr(trained[0], name)

    @property
    def batch_share(self) -> float:
        """How much of the statistics that it normalizes with is the batch's own, from 0 to 1."""
        return 0.0

    @property
    def follows(self) -> bool:
        """Whether it normalizes with statistics that follow the stream from batch to batch."""
        return False

    @property
    @abstractmethod
    def passes(self) -> int:
        """How often the last pass of the network used the layer."""

    @abstractmethod
    def begin_pass(self) -> None:
        """A new pass of the network begins."""

    @abstractmethod
    def learnable(self) -> list[nn.Parameter]:
        """The scale and shift that the trained layer has; none for a layer that is used more than once."""

    @abstractmethod
    def reset(self) -> None:
        """Goes back to the source."""

    @abstractmethod
    def settle(self) -> None:
        """Ends a batch: what is kept is kept, what its passes held is let go."""

    @abstractmethod
    def memory(self) -> list[Tensor]:
        """Copies of what it learned."""

    @abstractmethod
    def recall(self, memory: list[Tensor]) -> None:
        """Goes back to what `memory` gave."""

    @abstractmethod
    def learned(self) -> dict[str, Tensor]:
        """What it remembers between batches, by the trained layer's names."""

    @abstractmethod
    def plain_values(self) -> dict[str, Tensor]:
        """What makes the trained layer, in eval mode, repeat this layer's last use, by name."""
