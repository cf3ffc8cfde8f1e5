"""Tent: entropy minimization through the norm layers. Wang et al., ICLR 2021."""

from functools import partial

from torch import nn

from domainadaptor import Adaptor, MixedNorm, Objective, StepAdaptor, make_optimizer, method
from domainadaptor import option_types as t
from domainadaptor.adaptation.objective import build_objective, of_confident

__all__ = ["tent"]


@method(paper="Wang et al., Tent", year=2021, kind="loss", forwards="1 (2 if it predicts after)", backwards="1")
def tent(
    network: nn.Module,
    *,
    loss: t.Loss = "entropy",
    lr: t.LearningRate = 1e-3,
    optimizer: t.Optimizer = "adam",
    momentum: t.Momentum = 0.9,
    steps: t.Steps = 1,
    online: t.Online = True,
    reset_every: t.ResetEvery = None,
    predict: t.Predict = "before",
    m: t.M = 1.0,
    variance: t.Variance = "biased",
    threshold: t.Threshold = None,
    adapt_from: t.AdaptFrom = 0.0,
    temperature: t.Temperature = "code",
    scale: t.Scale = 2.0,
    views: t.Views = 3,
    seed: t.Seed = 0,
) -> Adaptor:
    """Minimize the entropy of each batch, online.

    Args:
        network: Any trained network with norm layers that have a scale or shift; batch norms use batch statistics.
        loss: Loss of the gradient step: the entropy as published, or another one.
        optimizer: "adam" as published for CIFAR, or "sgd" as for ImageNet.
    """
    return descend(
        network,
        build_objective(loss, temperature=temperature, scale=scale, views=views, seed=seed),
        lr=lr,
        optimizer=optimizer,
        momentum=momentum,
        steps=steps,
        online=online,
        reset_every=reset_every,
        predict=predict,
        m=m,
        variance=variance,
        threshold=threshold,
        adapt_from=adapt_from,
    )


def descend(
    network: nn.Module,
    objective: Objective,
    *,
    lr: float,
    optimizer: str,
    momentum: float,
    steps: int,
    reset_every: int | None,
    predict: str,
    m: float,
    variance: t.Variance,
    threshold: float | None,
    adapt_from: str | float = 0.0,
    online: bool = True,
    skip: tuple[str, ...] = (),
) -> Adaptor:
    """Build Tent with another objective: batch statistics, and steps on all scales and shifts but those to skip."""
    return StepAdaptor(
        network,
        norm=partial(MixedNorm, alpha=1.0 - m, fold=False, variance=variance, running=m < 1),
        objective=of_confident(objective, threshold),
        optimizer=make_optimizer(optimizer, lr=lr, momentum=momentum),
        online=online,
        steps=steps,
        reset_every=reset_every,
        predict=predict,
        others=True,
        skip=skip,
        adapt_from=adapt_from,
    )
