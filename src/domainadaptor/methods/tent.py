"""Tent: entropy down, through the norm layers. Wang et al., ICLR 2021."""

from functools import partial

from torch import nn

from domainadaptor.adaptation.adaptor import Adaptor
from domainadaptor.adaptation.losses import check_temperature
from domainadaptor.adaptation.objective import LOSSES, Objective, build_objective, check_threshold, of_confident
from domainadaptor.adaptation.optimizers import optimizer_called
from domainadaptor.adaptation.step import StepAdaptor
from domainadaptor.method_card import about
from domainadaptor.norms.mixed import MixedNorm
from domainadaptor.norms.moments import VARIANCES, Variance
from domainadaptor.options import check_choice, check_count, check_flag, check_number

__all__ = ["tent"]


@about("Wang et al., Tent", 2021, "loss", forwards="1 (2 if it predicts after)", backwards="1")
def tent(
    network: nn.Module,
    *,
    loss: str = "entropy",
    lr: float = 1e-3,
    optimizer: str = "adam",
    momentum: float = 0.9,
    steps: int = 1,
    online: bool = True,
    reset_every: int | None = None,
    predict: str = "before",
    m: float = 1.0,
    variance: Variance = "biased",
    threshold: float | None = None,
    adapt_from: str | float = 0.0,
    temperature: str | float = "code",
    scale: float = 2.0,
    views: int = 3,
    seed: int = 0,
) -> Adaptor:
    """Batch statistics and a step on the entropy of each batch, remembered from batch to batch.

    Args:
        network: Any trained network with norm layers that have a scale or shift; batch norms use batch statistics.
        loss: "entropy", or another: "slr", "gem-t", "gem-skd", "gem-aug".
        lr: The learning rate.
        optimizer: "adam" as its authors on CIFAR, or "sgd" as on ImageNet.
        momentum: Of "sgd"; Adam's first.
        steps: How many steps each batch gets.
        online: Whether scales and shifts are remembered; False: each batch starts from the source's, and only the
            optimizer's momentum is remembered ("without online" of the DomainAdaptor paper).
        reset_every: After how many batches everything is forgotten: None never, 1 after each (the paper's protocol).
        predict: "before" the step as its authors, or "after" it with one more pass (the paper's protocol).
        m: The weight of the new batch in running statistics: 1 is the batch alone, 0 the source's.
        variance: "biased" as batch normalization, or "unbiased".
        threshold: Only images whose confidence in the first pass is above it are learned from; None: all of them.
        adapt_from: Where learning begins, to save time: a share of the norm layers, as 0.5, or a name, as "layer3".
        temperature: Of the GEM losses: "code", "per_image", "batch_mean", or a number.
        scale: The temperature is this times the deviation of an image's logits.
        views: How many random views of each image "gem-aug" learns from.
        seed: Of the random views.
    """
    check_choice("loss", loss, LOSSES)
    check_count("views", views, low=1)
    check_count("seed", seed, low=0)
    check_temperature(temperature, scale)
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
    """Tent with another objective: batch statistics, and steps on the scales and shifts but of layers to skip."""
    check_choice("variance", variance, VARIANCES)
    check_number("m", m, low=0, high=1)
    check_count("steps", steps, low=1)
    check_threshold(threshold)
    check_flag("online", online)
    return StepAdaptor(
        network,
        norm=partial(MixedNorm, alpha=1.0 - m, fold=False, variance=variance, running=m < 1),
        objective=of_confident(objective, threshold),
        optimizer=optimizer_called(optimizer, lr=lr, momentum=momentum),
        online=online,
        steps=steps,
        reset_every=reset_every,
        predict=predict,
        others=True,
        skip=skip,
        adapt_from=adapt_from,
    )
