"""SAR: sharpness-aware entropy of reliable images, with recovery. Niu et al., ICLR 2023."""

import math
import re
from collections.abc import Sequence

import torch
from torch import Tensor, nn

import domainadaptor as da
from domainadaptor import method
from domainadaptor import option_types as t
from domainadaptor.adaptation.copying import unwrap
from domainadaptor.adaptation.step import compute_gradients
from domainadaptor.methods.tent import descend

__all__ = ["sar"]

_KEEP = 0.9  # of the moving average of losses
_RECOVER = 0.2 / math.log(1000)  # the authors' threshold, per unit of the largest entropy


@method(paper="Niu et al., SAR", year=2023, kind="loss", forwards="2 (3 if it predicts after)", backwards="2")
def sar(
    network: nn.Module,
    *,
    margin: t.EntropyMargin = 0.4,
    rho: t.NonNegative = 0.05,
    recover_below: t.NonNegative | None = None,
    skip: t.Skip = None,
    lr: t.LearningRate = 2.5e-4,
    momentum: t.Momentum = 0.9,
    steps: t.Steps = 1,
    reset_every: t.ResetEvery = None,
    predict: t.Predict = "before",
) -> da.Adaptor:
    """Sharpness-aware entropy of confident images.

    Args:
        network: Any trained network with norm layers that have a scale or shift; batch norms use batch statistics.
        rho: Radius of the sharpness-aware ascent step.
        recover_below: Reset when the average loss falls below this; None: 0.2 for 1000 classes as published, and in
            proportion to the largest possible entropy for others.
        lr: Learning rate; the authors use 2.5e-4 for ResNets and 1e-3 for transformers, at batch size 64.
        momentum: SGD momentum.
    """
    return descend(
        network,
        SharpnessAwareEntropy(margin=margin, rho=rho, recover_below=recover_below),
        lr=lr,
        momentum=momentum,
        steps=steps,
        reset_every=reset_every,
        predict=predict,
        skip=skipped(network, skip),
    )


def skipped(network: nn.Module, skip: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the layers that the option names, or the last stage; raise BadOption if there is no such layer."""
    plain = unwrap(network)
    if skip is None:
        return last_stage(plain)
    names = [name.strip() for name in skip.split(",")] if isinstance(skip, str) else list(skip)
    names = [name for name in names if name]
    known = {name for name, _ in plain.named_modules()}
    for name in names:
        if name not in known:
            top = ", ".join(child for child, _ in plain.named_children())
            raise da.BadOption(f"skip={name!r} is not a layer of the network; it has {top}, and the layers inside them")
    return tuple(names)


def last_stage(network: nn.Module) -> tuple[str, ...]:
    """Return the last stage by the usual names, and the norm after it; nothing for other names.

    It is the last of `layer1`, `layer2`, ... and of `stages` or `layers`, or the last quarter of `blocks` or `layer`.
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


class SharpnessAwareEntropy(da.Objective):
    """The mean entropy of confident images at the worst point nearby; its moving average triggers a reset.

    The authors' program restores the old average after a reset, so that it resets again and again.
    """

    kept = ("_average",)
    _average: float | None = None

    def __init__(self, *, margin: float, rho: float, recover_below: float | None) -> None:
        self.margin, self.rho, self.recover_below = margin, rho, recover_below
        self._classes = 2

    def __call__(self, network: da.AdaptiveNetwork, images: Tensor, logits: Tensor) -> Tensor | None:
        """Return a function of the current weights with the value and gradient of the entropy at the worst point."""
        self._classes = logits.shape[1]
        h = da.entropy(logits)
        kept = self._confident(h)
        if not bool(kept.any()):
            return None
        loss = h[kept].mean()
        parameters = list(network.learnable().values())
        if not da.finite(*compute_gradients(loss, parameters)):
            for p in parameters:
                p.grad = None
            return torch.stack([(p * torch.nan).sum() for p in parameters]).sum()  # the step is refused as not finite
        held = [p.detach().clone() for p in parameters]
        _climb(parameters, self.rho)
        worst = da.entropy(da.in_loss_precision(network(images)))
        kept &= self._confident(worst)
        # In the authors' program, the mean of no images turns the weights into NaN.
        second = worst[kept].mean() if bool(kept.any()) else None
        if second is not None:
            compute_gradients(second, parameters)
        with torch.no_grad():
            for p, value in zip(parameters, held, strict=True):
                p.copy_(value)
        if second is None:
            return None
        result = second.detach()
        for p in parameters:
            if p.grad is not None:
                result = result + ((p - p.detach()) * p.grad).sum()
                p.grad = None
        return result

    def after_step(self, network: da.AdaptiveNetwork, loss: Tensor) -> str | None:
        """Reset to the source model if the average loss is too low."""
        value = loss.item()
        self._average = value if self._average is None else _KEEP * self._average + (1 - _KEEP) * value
        limit = _RECOVER * math.log(self._classes) if self.recover_below is None else self.recover_below
        return "the average loss was too low, so the source model was restored" if self._average < limit else None

    def _confident(self, entropies: Tensor) -> Tensor:
        return entropies.detach() < self.margin * math.log(self._classes)


@torch.no_grad()
def _climb(parameters: list[nn.Parameter], rho: float) -> None:
    """Move by a distance of rho along the gradients, and drop them."""
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    norm = torch.stack([g.norm() for g in gradients]).norm()
    for p, gradient in zip(parameters, gradients, strict=True):
        p.add_(gradient * (rho / (norm + 1e-12)))
        p.grad = None
