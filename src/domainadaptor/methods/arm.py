"""ARM: one step down a loss that was learned for it. Zhang et al., NeurIPS 2021."""

from collections.abc import Mapping
from functools import partial
from typing import Literal

from torch import Tensor, nn
from torch.optim import SGD

from domainadaptor.adaptation.adaptor import Adaptor
from domainadaptor.adaptation.objective import Forward, Objective
from domainadaptor.adaptation.step import StepAdaptor
from domainadaptor.adaptation.trained_head import TrainedHead, trained_head
from domainadaptor.errors import BadOption
from domainadaptor.method_card import about
from domainadaptor.norms.batch_only import batch_only
from domainadaptor.options import check_choice, check_count, check_number
from domainadaptor.tasks.learned_loss import LearnedLoss

__all__ = ["arm"]


class Learned(Objective):
    """What a small trained network says of the batch's logits."""

    def __init__(self, head: TrainedHead, classes: int) -> None:
        self.head = head
        self.classes = classes

    def __call__(self, forward: Forward, images: Tensor, logits: Tensor) -> Tensor:
        """One number.

        Raises:
            BadOption: It was trained for another number of classes.
        """
        if logits.shape[1] != self.classes:
            raise BadOption(
                f"learned_loss was trained for {self.classes} classes, and the network predicts {logits.shape[1]}; "
                "pass the one that was trained with the network"
            )
        return self.head(logits)


@about(
    "Zhang et al., ARM", 2021, "loss", forwards="2", backwards="1", needs=("a head trained for it", "altered training")
)
def arm(
    network: nn.Module,
    *,
    learned_loss: LearnedLoss | Mapping[str, Tensor] | None = None,
    learns: Literal["norms", "all"] = "norms",
    lr: float = 0.1,
    steps: int = 1,
    reset_every: int | None = 1,
    predict: str = "after",
) -> Adaptor:
    """Batch statistics and one step down a learned loss, for a network that was trained to be adapted by it.

    Of ARM's three variants the one with a learned loss, which DomainAdaptor compares with. Networks trained with the
    variant "bn" are adapted by adabn; those with a context network adapt in their own forward.

    Args:
        network: A network that `domainadaptor train --algorithm arm` trained.
        learned_loss: The loss that was trained with it, or its tensors, as a checkpoint holds them.
        learns: The scales and shifts of "norms" as DomainAdaptor's authors, or "all" weights as ARM's; as in training.
        lr: The learning rate of gradient descent, as in training.
        steps: How many steps each batch gets.
        reset_every: After how many batches everything is forgotten: 1 after each, None never.
        predict: "after" the step with one more pass, or "before" it.
    """
    check_choice("learns", learns, ("norms", "all"))
    check_number("lr", lr, low=0, high=3.4e38)
    check_count("steps", steps, low=1)
    classes = _classes(learned_loss)
    head = trained_head(
        "learned_loss",
        learned_loss,
        partial(LearnedLoss, classes),
        "domainadaptor train ... --algorithm arm",
        "learned_loss",
    )
    return StepAdaptor(
        network,
        norm=batch_only,
        objective=Learned(head, classes),
        optimizer=partial(SGD, lr=float(lr)),
        steps=int(steps),
        reset_every=reset_every,
        predict=predict,
        learns=learns,
    )


def _classes(given: object) -> int:
    """How many classes a learned loss is for; of one that is none, any number, which will not fit."""
    tensors = given.state_dict() if isinstance(given, nn.Module) else given
    first = tensors.get("layers.0.weight") if isinstance(tensors, Mapping) else None
    return int(first.shape[1]) if isinstance(first, Tensor) and first.ndim == 2 else 2
