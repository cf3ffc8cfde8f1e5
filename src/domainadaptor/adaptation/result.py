"""Adaptation: what an adaptor returns for one batch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from torch import Tensor

from domainadaptor.errors import AdaptationWarning


@dataclass(frozen=True, eq=False)
class Adaptation:
    """The predictions for one batch, and how they came about.

    `loss` and `alpha` are read from the device only when they are asked for.

    Example:
        >>> result = da.adapt(network, "adamixbn").adapt(images)
        >>> result.logits.shape, list(result.alpha), result.fell_back
        (torch.Size([8, 5]), ['1'], False)
    """

    logits: Tensor  # (N, K) or (N, K, H, W), after adapting to the batch; without logits, whatever the network returns
    before: Tensor  # alike, with the same norm layers before the first step: not the source model's logits
    loss_tensor: Tensor | None = field(default=None, repr=False)
    alpha_tensors: Mapping[str, Tensor | float] = field(default_factory=dict, repr=False)
    note: str | None = None  # why it fell back, which layers could not take part, and the warnings
    warnings: tuple[AdaptationWarning, ...] = ()  # why it may be worse than the source model
    fell_back: bool = False  # the logits are the source model's
    collapsed: bool = False  # because the guard went back to the source model

    @cached_property
    def loss(self) -> float | None:
        """The loss of the last step; None if no step was taken."""
        return None if self.loss_tensor is None else self.loss_tensor.item()

    @cached_property
    def alpha(self) -> dict[str, float]:
        """Layer -> weight of its source statistics; "layer[i]" for each use of a layer that is used more than once."""
        return {name: float(value) for name, value in self.alpha_tensors.items()}

    def __repr__(self) -> str:
        shape = " x ".join(map(str, getattr(self.logits, "shape", [type(self.logits).__name__])))
        return f"Adaptation(logits {shape}, loss={self.loss}, fell_back={self.fell_back}, note={self.note!r})"
