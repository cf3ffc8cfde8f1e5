"""ARM: one gradient step on a learned loss. Zhang et al., NeurIPS 2021."""

from collections.abc import Mapping
from functools import partial

from torch import Tensor, nn
from torch.optim import SGD

from domainadaptor import AdaptiveNetwork, Adaptor, BadOption, Objective, StepAdaptor, batch_only, method
from domainadaptor import option_types as t
from domainadaptor.adaptation.trained_head import TrainedHead, trained_head

__all__ = ["arm"]


class LearnedLoss(nn.Module):
    """A small network that maps the logits of each image to a number; the loss is the norm of all numbers."""

    def __init__(self, classes: int, hidden: int = 32) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Linear(classes, hidden), nn.ReLU()),
            *(nn.Linear(hidden, hidden), nn.ReLU()),
            *(nn.Linear(hidden, hidden), nn.ReLU()),
            nn.Linear(hidden, 1),
        )

    def forward(self, logits: Tensor) -> Tensor:
        """Return one number for the batch."""
        return self.layers(logits).norm()  # type: ignore[no-any-return]


class Learned(Objective):
    """A loss computed from the logits by a trained network."""

    def __init__(self, head: TrainedHead, classes: int) -> None:
        self.head = head
        self.classes = classes

    def __call__(self, network: AdaptiveNetwork, images: Tensor, logits: Tensor) -> Tensor:
        """Return the loss, or raise BadOption if it was trained for another number of classes."""
        if logits.shape[1] != self.classes:
            raise BadOption(
                f"learned_loss was trained for {self.classes} classes, but the network predicts {logits.shape[1]}; "
                "pass the loss that was trained with the network"
            )
        return self.head(logits)


@method(
    paper="Zhang et al., ARM",
    year=2021,
    kind="loss",
    forwards="2",
    backwards="1",
    needs=("a head trained for it", "altered training"),
)
def arm(
    network: nn.Module,
    *,
    learned_loss: t.TrainedTensors = None,
    learns: t.Learns = "norms",
    lr: t.LearningRate = 0.1,
    steps: t.Steps = 1,
    reset_every: t.ResetEvery = 1,
    predict: t.Predict = "after",
) -> Adaptor:
    """One step on a loss that was trained for adaptation.

    This is ARM's variant with a learned loss, which DomainAdaptor compares with. Networks trained with the variant
    "bn" are adapted by adabn; those with a context network adapt in their own forward pass.

    Args:
        network: A network trained by `domainadaptor train --algorithm arm`.
        learned_loss: The loss trained together with the network, or its tensors from the checkpoint.
        learns: What the step changes, as in training: scales and shifts of "norms" (DomainAdaptor), or "all" weights
            (ARM).
        lr: Learning rate of gradient descent, as in training.
    """
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
        optimizer=partial(SGD, lr=lr),
        steps=steps,
        reset_every=reset_every,
        predict=predict,
        learns=learns,
    )


def _classes(given: object) -> int:
    """Return the number of classes of a learned loss; 2 if it is none, which will not fit."""
    tensors = given.state_dict() if isinstance(given, nn.Module) else given
    first = tensors.get("layers.0.weight") if isinstance(tensors, Mapping) else None
    return int(first.shape[1]) if isinstance(first, Tensor) and first.ndim == 2 else 2
