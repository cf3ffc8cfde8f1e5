"""Tent: entropy minimization through the norm layers. Wang et al., ICLR 2021."""

from functools import partial
from typing import Any

from torch import nn

from domainadaptor import Adaptor, MixedNorm, Objective, StepAdaptor, batch_only, make_optimizer, method
from domainadaptor import option_types as t
from domainadaptor.adaptation.adaptive_network import NormFactory
from domainadaptor.adaptation.objective import build_objective, of_confident

__all__ = ["tent"]


@method(
    paper="Wang et al., Tent",
    year=2021,
    kind="loss",
    forwards="1 (2 if it predicts after)",
    backwards="1",
    options=partial(t.gradient_steps, lr=1e-3, optimizer="adam"),
)
def tent(
    network: nn.Module,
    *,
    loss: t.Loss = "entropy",
    online: t.Online = True,
    m: t.M = 1.0,
    variance: t.Variance = "biased",
    threshold: t.Threshold = None,
    adapt_from: t.AdaptFrom = 0.0,
    temperature: t.Temperature = "code",
    scale: t.Scale = 2.0,
    views: t.Views = 3,
    seed: t.Seed = 0,
    **steps: Any,
) -> Adaptor:
    """Minimize the entropy of each batch, online.

    Args:
        network: Any trained network with norm layers that have a scale or shift; batch norms use batch statistics.
        loss: Loss of the gradient step: the entropy as published, or another one.
        optimizer: "adam" as published for CIFAR, or "sgd" as for ImageNet.
    """
    objective = build_objective(loss, temperature=temperature, scale=scale, views=views, seed=seed)
    return descend(
        network,
        of_confident(objective, threshold),
        norm=mixing(m, variance),
        online=online,
        adapt_from=adapt_from,
        **steps,
    )


def mixing(m: float, variance: t.Variance) -> NormFactory:
    """Return norm layers with running statistics in which the new batch has weight m."""
    return partial(MixedNorm, alpha=1.0 - m, variance=variance, running=m < 1)


def descend(
    network: nn.Module,
    objective: Objective,
    *,
    lr: float,
    momentum: float,
    optimizer: str = "sgd",
    norm: NormFactory = batch_only,
    others: bool = True,
    **settings: Any,
) -> Adaptor:
    """Build an adaptor that steps on an objective through all norm layers; other settings are `StepAdaptor`'s."""
    return StepAdaptor(
        network,
        norm=norm,
        objective=objective,
        optimizer=make_optimizer(optimizer, lr=lr, momentum=momentum),
        others=others,
        **settings,
    )
