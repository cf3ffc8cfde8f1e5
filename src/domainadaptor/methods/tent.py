"""Tent: entropy down, through the norm layers. Wang et al., ICLR 2021."""

from functools import partial

from torch import nn

from domainadaptor.adaptation.adaptor import Adaptor
from domainadaptor.adaptation.objective import Objective, build_objective, of_confident
from domainadaptor.adaptation.state import make_optimizer
from domainadaptor.adaptation.step import StepAdaptor
from domainadaptor.catalog import method
from domainadaptor.norms.mixed import MixedNorm
from domainadaptor.option_types import (
    AdaptFrom,
    LearningRate,
    Loss,
    M,
    Momentum,
    Online,
    Optimizer,
    Predict,
    ResetEvery,
    Scale,
    Seed,
    Steps,
    Temperature,
    Threshold,
    Variance,
    Views,
)

__all__ = ["tent"]


@method(paper="Wang et al., Tent", year=2021, kind="loss", forwards="1 (2 if it predicts after)", backwards="1")
def tent(
    network: nn.Module,
    *,
    loss: Loss = "entropy",
    lr: LearningRate = 1e-3,
    optimizer: Optimizer = "adam",
    momentum: Momentum = 0.9,
    steps: Steps = 1,
    online: Online = True,
    reset_every: ResetEvery = None,
    predict: Predict = "before",
    m: M = 1.0,
    variance: Variance = "biased",
    threshold: Threshold = None,
    adapt_from: AdaptFrom = 0.0,
    temperature: Temperature = "code",
    scale: Scale = 2.0,
    views: Views = 3,
    seed: Seed = 0,
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
    variance: Variance,
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
