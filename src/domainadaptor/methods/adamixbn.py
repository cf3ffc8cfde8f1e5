"""AdaMixBN: source and batch statistics mixed by their distance. Zhang et al., DomainAdaptor, ICCV 2023."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import nn
from torch.optim import SGD

from domainadaptor import Adaptor, BadOption, MixedNorm, StepAdaptor, method
from domainadaptor import option_types as t
from domainadaptor.adaptation.objective import build_objective, of_confident
from domainadaptor.options import defaults_of

__all__ = ["adamixbn"]


def _refuse_unused(options: Mapping[str, Any]) -> None:
    """Refuse an option that has no effect."""
    loss, temperature = options["loss"], options["temperature"]
    no_step = None if loss else "there is no step without a loss"
    no_temperature = None if loss and loss.startswith("gem") else "only the gem losses have a temperature"
    reasons = {
        **dict.fromkeys(("lr", "steps", "threshold", "adapt_from", "reuse"), no_step),
        "temperature": no_temperature,
        "scale": no_temperature if isinstance(temperature, str) else "the temperature is a number",
        "views": None if loss == "gem-aug" else "only gem-aug uses views",
    }
    defaults = defaults_of(adamixbn)
    for option, reason in reasons.items():
        if reason and options[option] not in (defaults[option], 0):
            raise BadOption(f"{option}={options[option]!r} has no effect with loss={loss!r}: {reason}; leave it out")


@method(
    paper="Zhang et al., DomainAdaptor",
    year=2023,
    kind="statistics",
    forwards="1 (2 with a loss)",
    backwards="0 (1 with a loss)",
    check=_refuse_unused,
)
def adamixbn(
    network: nn.Module,
    *,
    alpha: t.Alpha = "code",
    fold: bool = True,
    loss: t.Loss | None = None,
    temperature: t.Temperature = "code",
    scale: t.Scale = 2.0,
    views: t.Views = 3,
    variance: t.Variance = "unbiased",
    lr: t.LearningRate = 1e-3,
    steps: t.StepsOrZero = 1,
    threshold: t.Threshold = None,
    adapt_from: t.AdaptFrom = 0.0,
    reuse: t.Reuse = False,
    seed: t.Seed = 0,
) -> Adaptor:
    """Mix source and batch statistics by their distance.

    Args:
        network: Any trained network with batch normalization.
        fold: Move the source statistics into scale and shift, so that gradient steps start from the source model.
        loss: Loss of the gradient step; None for no step.
    """
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
        reuse=reuse,
    )
