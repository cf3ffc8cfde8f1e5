"""AdaMixBN: source and batch statistics mixed by their distance. Zhang et al., DomainAdaptor, ICCV 2023."""

from functools import partial

from torch import nn
from torch.optim import SGD

from domainadaptor.adaptation.adaptor import Adaptor
from domainadaptor.adaptation.objective import build_objective, of_confident
from domainadaptor.adaptation.step import StepAdaptor
from domainadaptor.catalog import method
from domainadaptor.errors import BadOption
from domainadaptor.norms.mixed import MixedNorm
from domainadaptor.option_types import (
    AdaptFrom,
    Alpha,
    LearningRate,
    Loss,
    Scale,
    Seed,
    StepsOrZero,
    Temperature,
    Threshold,
    Variance,
    Views,
)
from domainadaptor.options import defaults_of

__all__ = ["adamixbn"]


@method(
    paper="Zhang et al., DomainAdaptor",
    year=2023,
    kind="statistics",
    forwards="1 (2 with a loss)",
    backwards="0 (1 with a loss)",
)
def adamixbn(
    network: nn.Module,
    *,
    alpha: Alpha = "code",
    fold: bool = True,
    loss: Loss | None = None,
    temperature: Temperature = "code",
    scale: Scale = 2.0,
    views: Views = 3,
    variance: Variance = "unbiased",
    lr: LearningRate = 1e-3,
    steps: StepsOrZero = 1,
    threshold: Threshold = None,
    adapt_from: AdaptFrom = 0.0,
    seed: Seed = 0,
) -> Adaptor:
    """Mix source and batch statistics by their distance.

    Args:
        network: Any trained network with batch normalization.
        fold: Move the source statistics into scale and shift, so that gradient steps start from the source model.
        loss: Loss of the gradient step; None for no step.
    """
    _refuse_idle(
        loss,
        temperature=temperature,
        scale=scale,
        views=views,
        lr=lr,
        steps=steps,
        threshold=threshold,
        adapt_from=adapt_from,
    )
    made = None
    if loss is not None:
        made = build_objective(loss, temperature=temperature, scale=scale, views=views, seed=seed)
    return StepAdaptor(
        network,
        norm=partial(MixedNorm, alpha=alpha, fold=fold, variance=variance),
        objective=None if made is None else of_confident(made, threshold),
        optimizer=partial(SGD, lr=lr),
        steps=steps,
        adapt_from=adapt_from,
    )


def _refuse_idle(loss: str | None, **options: object) -> None:
    """Refuse an option that has no effect."""
    gem = loss is not None and loss.startswith("gem")
    fixed = not isinstance(options["temperature"], str)
    reasons = {
        "lr": None if loss else "there is no step without a loss",
        "steps": None if loss else "there is no step without a loss",
        "threshold": None if loss else "there is no step without a loss",
        "adapt_from": None if loss else "there is no step without a loss",
        "temperature": None if gem else "only the gem losses have a temperature",
        "scale": "the temperature is a number" if fixed else None if gem else "only the gem losses have a temperature",
        "views": None if loss == "gem-aug" else "only gem-aug looks at views",
    }
    defaults = defaults_of(adamixbn)
    for option, reason in reasons.items():
        if reason and options[option] not in (defaults[option], 0):
            raise BadOption(f"{option}={options[option]!r} has no effect with loss={loss!r}: {reason}; leave it out")
