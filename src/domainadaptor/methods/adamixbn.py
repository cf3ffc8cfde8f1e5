"""AdaMixBN: source and batch statistics mixed by their distance. Zhang et al., DomainAdaptor, ICCV 2023."""

from functools import partial

from torch import nn
from torch.optim import SGD

from domainadaptor.adaptation.adaptor import Adaptor
from domainadaptor.adaptation.losses import check_temperature
from domainadaptor.adaptation.objective import LOSSES, build_objective, check_threshold, of_confident
from domainadaptor.adaptation.step import StepAdaptor
from domainadaptor.errors import BadOption
from domainadaptor.method_card import about
from domainadaptor.norms.alpha import check_alpha
from domainadaptor.norms.mixed import MixedNorm
from domainadaptor.norms.moments import VARIANCES, Variance
from domainadaptor.options import check_choice, check_count, check_flag, check_number, defaults_of

__all__ = ["adamixbn"]

_LARGEST = 3.4e38  # of float32; torch refuses a larger step without saying why


@about("Zhang et al., DomainAdaptor", 2023, "statistics", forwards="1 (2 with a loss)", backwards="0 (1 with a loss)")
def adamixbn(
    network: nn.Module,
    *,
    alpha: str | float = "code",
    fold: bool = True,
    loss: str | None = None,
    temperature: str | float = "code",
    scale: float = 2.0,
    views: int = 3,
    variance: Variance = "unbiased",
    lr: float = 1e-3,
    steps: int = 1,
    threshold: float | None = None,
    adapt_from: str | float = 0.0,
    seed: int = 0,
) -> Adaptor:
    """Source and batch statistics mixed in every norm layer, by how far the batch is from the source.

    Args:
        network: Any trained network with batch normalization.
        alpha: The weight of the source: "code" (the authors' program), "paper", either "-reversed", or a number.
        fold: Whether the source statistics move into scale and shift, which makes the layer fit for steps.
        loss: "entropy", "slr", "gem-t", "gem-skd", "gem-aug", or None for no step.
        temperature: Of the GEM losses: "code" (the authors' program), "per_image", "batch_mean" (the paper), a number.
        scale: The temperature is this times the deviation of an image's logits.
        views: How many random views of each image "gem-aug" learns from.
        variance: "unbiased" as the authors compute it, or "biased" as batch normalization does.
        lr: The learning rate of plain gradient descent.
        steps: How many steps each batch gets.
        threshold: Only images whose confidence in the first pass is above it are learned from; None: all of them.
        adapt_from: Where learning begins, to save time: a share of the norm layers, as 0.5, or a name, as "layer3".
        seed: Of the random views; the same batch always gets the same ones.
    """
    loss = None if loss == "none" else loss
    check_alpha(alpha)
    check_flag("fold", fold)
    check_choice("loss", loss, (*LOSSES, None))
    check_temperature(temperature, scale)
    check_count("views", views, low=1)
    check_choice("variance", variance, VARIANCES)
    check_number("lr", lr, low=0, high=_LARGEST)
    check_count("steps", steps, low=0)
    check_threshold(threshold)
    check_count("seed", seed, low=0)
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
        optimizer=partial(SGD, lr=float(lr)),
        steps=int(steps),
        adapt_from=adapt_from,
    )


def _refuse_idle(loss: str | None, **options: object) -> None:
    """An option that cannot have an effect is a mistake, not a wish."""
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
            raise BadOption(f"{option}={options[option]!r} makes no sense with loss={loss!r}: {reason}; leave it out")
