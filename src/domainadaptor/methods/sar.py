"""SAR: sharpness-aware entropy of reliable images, with recovery. Niu et al., ICLR 2023."""

import math
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from domainadaptor.adaptation.adaptor import Adaptor
from domainadaptor.adaptation.copying import unwrap
from domainadaptor.adaptation.logits import finite, in_loss_precision
from domainadaptor.adaptation.losses import entropy
from domainadaptor.adaptation.objective import Forward, Objective
from domainadaptor.adaptation.optimizers import optimizer_called
from domainadaptor.adaptation.step import StepAdaptor, gradients_of
from domainadaptor.catalog import method
from domainadaptor.errors import BadOption
from domainadaptor.norms.batch_only import batch_only
from domainadaptor.option_types import (
    EntropyMargin,
    LearningRate,
    Momentum,
    NonNegative,
    Predict,
    ResetEvery,
    Skip,
    Steps,
)

__all__ = ["sar"]

_KEEP = 0.9  # of the moving average of losses
_RECOVER = 0.2 / math.log(1000)  # the authors' threshold, per unit of the largest entropy


@method(paper="Niu et al., SAR", year=2023, kind="loss", forwards="2 (3 if it predicts after)", backwards="2")
def sar(
    network: nn.Module,
    *,
    margin: EntropyMargin = 0.4,
    rho: NonNegative = 0.05,
    recover_below: NonNegative | None = None,
    skip: Skip = None,
    lr: LearningRate = 2.5e-4,
    momentum: Momentum = 0.9,
    steps: Steps = 1,
    reset_every: ResetEvery = None,
    predict: Predict = "before",
) -> Adaptor:
    """Sharpness-aware entropy of confident images.

    Args:
        network: Any trained network with norm layers that have a scale or shift; batch norms use batch statistics.
        rho: Radius of the sharpness-aware ascent step.
        recover_below: Reset when the average loss falls below this; None: 0.2 for 1000 classes as published, and in
            proportion to the largest possible entropy for others.
        lr: Learning rate; the authors use 2.5e-4 for ResNets and 1e-3 for transformers, at batch size 64.
        momentum: SGD momentum.
    """
    return _Sar(
        network,
        rho=rho,
        norm=batch_only,
        objective=_SureEntropy(margin=margin, recover_below=recover_below),
        optimizer=optimizer_called("sgd", lr=lr, momentum=momentum),
        steps=steps,
        reset_every=reset_every,
        predict=predict,
        others=True,
        skip=skipped(network, skip),
    )


def skipped(network: nn.Module, skip: str | Sequence[str] | None) -> tuple[str, ...]:
    """The layers that an option names, or the last stage.

    Raises:
        BadOption: The network has no such layer.
    """
    plain = unwrap(network)
    if skip is None:
        return last_stage(plain)
    names = [name.strip() for name in skip.split(",")] if isinstance(skip, str) else list(skip)
    names = [name for name in names if name]
    known = {name for name, _ in plain.named_modules()}
    for name in names:
        if name not in known:
            top = ", ".join(child for child, _ in plain.named_children())
            raise BadOption(f"skip={name!r} is no layer of the network; it has {top}, and what those hold")
    return tuple(names)


def last_stage(network: nn.Module) -> tuple[str, ...]:
    """The last stage by the usual names, and the norm after it; nothing where other names are used.

    That is the last of `layer1`, `layer2`, ... and of `stages` or `layers`, or the last quarter of `blocks` or `layer`.
    """
    found: list[str] = []
    for name, module in [("", network), *network.named_modules()]:
        prefix = f"{name}." if name else ""
        children = [child for child, _ in module.named_children()]
        numbered = [child for child in children if re.fullmatch(r"layer\d+", child)]
        if len(numbered) > 1:
            found.append(f"{prefix}{max(numbered, key=lambda child: int(child[5:]))}")
        for holder, share in (("stages", 0), ("layers", 0), ("blocks", 4), ("layer", 4)):
            if holder in children:
                held = [child for child, _ in module.get_submodule(holder).named_children()]
                count = len(held) // share if share else min(1, len(held) - 1)
                found += [f"{prefix}{holder}.{child}" for child in held[len(held) - count :]] if count > 0 else []
        if found:
            return (*found, *(f"{prefix}{last}" for last in ("norm", "layernorm") if last in children))
    return ()


class _SureEntropy(Objective):
    """The mean entropy of the images that are sure, and the moving average of what it was uphill."""

    def __init__(self, *, margin: float, recover_below: float | None) -> None:
        self.margin = margin
        self.recover_below = recover_below
        self._average: float | None = None

    def sure(self, entropies: Tensor) -> Tensor:
        return entropies.detach() < self.margin * math.log(self._classes)

    def __call__(self, forward: Forward, images: Tensor, logits: Tensor) -> Tensor | None:
        self._classes = logits.shape[1]
        h = entropy(logits)
        kept = self.sure(h)
        return h[kept].mean() if bool(kept.any()) else None

    def too_low(self, loss: float) -> bool:
        """Whether the average, with this loss in it, is below the threshold."""
        self._average = loss if self._average is None else _KEEP * self._average + (1 - _KEEP) * loss
        limit = _RECOVER * math.log(self._classes) if self.recover_below is None else self.recover_below
        return self._average < limit

    def reset(self) -> None:
        """No loss was seen. The authors' program writes the old average back, so that it recovers again and again."""
        self._average = None

    def memory(self) -> float | None:
        return self._average

    def recall(self, memory: float | None) -> None:
        self._average = memory


class _Sar(StepAdaptor):
    """Each step climbs to the worst point nearby, takes the gradient there, and goes down from where it was."""

    def __init__(self, network: nn.Module, *, rho: float, objective: _SureEntropy, **options: Any) -> None:
        self._rho = rho
        self._sure = objective
        self._recovered = False  # by the last batch
        super().__init__(network, objective=objective, **options)

    def _take_steps(self, images: Tensor, before: Tensor, learnable: list[nn.Parameter]) -> float | str | None:
        value = None
        self._recovered = False
        for step in range(self._steps):
            logits = in_loss_precision(before if step == 0 else self._pass(images))
            taken = self._take_step(images, logits, learnable)
            if not isinstance(taken, float):
                return taken if value is None or taken is not None else value
            value = taken
            if self._sure.too_low(value):
                self._forget()
                self._recovered = True
                break
        return value

    def _take_step(self, images: Tensor, logits: Tensor, learnable: list[nn.Parameter]) -> float | str | None:
        assert self._optimizer is not None
        optimizer = self._optimizer.over(learnable)
        loss = self._loss(images, logits)
        if loss is None:
            return None
        kept = self._sure.sure(entropy(logits))
        if (why := _not_finite(loss, learnable)) is not None:
            return why
        held = [p.detach().clone() for p in learnable]
        with torch.no_grad():
            gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in learnable]
            norm = torch.stack([g.norm() for g in gradients]).norm()
            for p, gradient in zip(learnable, gradients, strict=True):
                p.add_(gradient, alpha=self._rho / (norm.item() + 1e-12))
        optimizer.zero_grad(set_to_none=True)
        uphill = entropy(in_loss_precision(self._pass(images)))
        kept &= self._sure.sure(uphill)
        # Without this, the mean of nothing would be NaN and so would the weights: so it is in the authors' program.
        left = bool(kept.any())
        second = uphill[kept].mean() if left else loss
        why = _not_finite(second, learnable) if left else None
        with torch.no_grad():
            for p, value in zip(learnable, held, strict=True):
                p.copy_(value)
        if why is not None or not left:
            return why
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return second.item()

    def _note(self, loss: float | None, single: list[str]) -> str | None:
        note = super()._note(loss, single)
        if not self._recovered:
            return note
        return "; ".join([*([note] if note else []), "the average loss was too low: back to the source"])


def _not_finite(loss: Tensor, learnable: list[nn.Parameter]) -> str | None:
    """Computes the gradients, and says why they cannot be used."""
    if not finite(loss):
        return f"the loss is not finite ({loss.item()})"
    if not finite(*(g for g in gradients_of(loss, learnable) if g is not None)):
        return "the gradient is not finite"
    return None
