"""Adaptation by a puzzle trained along: rotation (Sun et al., ICML 2020) and jigsaw (Carlucci et al., CVPR 2019)."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD

from domainadaptor.adaptation.adaptive_network import NormPolicy
from domainadaptor.adaptation.adaptor import Adaptor
from domainadaptor.adaptation.copying import unwrap
from domainadaptor.adaptation.features import find_head
from domainadaptor.adaptation.logits import in_loss_precision
from domainadaptor.adaptation.objective import Forward, Objective
from domainadaptor.adaptation.state import Draws, Part
from domainadaptor.adaptation.step import StepAdaptor
from domainadaptor.adaptation.trained_head import TrainedHead, trained_head
from domainadaptor.errors import BadBatch, BadOption
from domainadaptor.method_card import about
from domainadaptor.norms.batch_only import batch_only
from domainadaptor.norms.mixed import MixedNorm
from domainadaptor.options import check_choice, check_count, check_number
from domainadaptor.tasks import Task
from domainadaptor.tasks.jigsaw import Jigsaw
from domainadaptor.tasks.rotation import Rotation

__all__ = ["jigsaw", "rotation"]

_NORMS: dict[str, NormPolicy] = {
    "batch": batch_only,
    "mixed": partial(MixedNorm, alpha="code", fold=True, variance="unbiased"),  # AdaMixBN
    "source": partial(MixedNorm, alpha=1.0, fold=False, variance="biased"),
}


class Puzzle(Objective):
    """Cross-entropy of the trained head's answers to changed images, one change an image and step."""

    reads_features = True

    def __init__(self, head: TrainedHead, seed: int) -> None:
        self.head = head
        self.idle = ""
        self._draws = Draws(seed)

    def _parts(self) -> Sequence[Part]:
        return (self._draws,)

    def __call__(self, forward: Forward, images: Tensor, logits: Tensor) -> Tensor | None:
        """The mean over the batch, where `forward` gives the features; None for images that cannot be changed so."""
        assert isinstance(self.head.module, Task)
        try:
            changed, answers = self.head.module.examples(images, self._draws.generator)
        except BadBatch as error:
            self.idle = str(error)
            return None
        return F.cross_entropy(in_loss_precision(self.head(forward(changed))), answers)


def _puzzle(
    name: str,
    make: Callable[[int], Task],
    network: nn.Module,
    *,
    task: Task | Mapping[str, Tensor] | None = None,
    statistics: str = "batch",
    lr: float,
    momentum: float = 0.0,
    steps: int = 1,
    reset_every: int | None = 1,
    predict: str = "after",
    seed: int = 0,
    head: str | None = None,
) -> Adaptor:
    """A step on a puzzle, through the norm layers.

    Args:
        name: Of the puzzle.
        make: Makes its head, for features of a width.
        network: A network that was trained together with the puzzle's head.
        task: That head, or its tensors, as a checkpoint holds them: heads["rotation"], heads["jigsaw"].
        statistics: "batch", "mixed" as AdaMixBN does, or "source".
        lr: The learning rate of gradient descent.
        momentum: Of it; 0.9 in DomainAdaptor's program where batches are remembered.
        steps: How many steps each batch gets, each with new turns or orders.
        reset_every: After how many batches everything is forgotten: 1 after each, None never.
        predict: "after" the step with one more pass, or "before" it.
        seed: Of the turns or orders.
        head: The name of the linear layer that makes the logits; None: the last one.
    """
    check_choice("statistics", statistics, _NORMS)
    check_number("lr", lr, low=0, high=3.4e38)
    check_number("momentum", momentum, low=0, high=1)
    check_count("steps", steps, low=1)
    check_count("seed", seed, low=0)
    if isinstance(task, nn.Module) and not isinstance(task, Task):
        raise BadOption(f"task is a {type(task).__name__}: expected a domainadaptor.tasks.Task, which has examples")
    plain = unwrap(network)

    def fresh() -> Task:
        layer = plain.get_submodule(find_head(plain, head))
        assert isinstance(layer, nn.Linear)
        return make(layer.in_features)

    trained = trained_head("task", task, fresh, f"domainadaptor train ... --task {name}", name)
    return StepAdaptor(
        network,
        norm=_NORMS[statistics],
        objective=Puzzle(trained, int(seed)),
        optimizer=partial(SGD, lr=float(lr), momentum=float(momentum)),
        steps=int(steps),
        reset_every=reset_every,
        predict=predict,
        others=statistics != "mixed",
        head=head,
    )


_tells = partial(
    about,
    kind="self-supervised",
    forwards="3",
    backwards="1",
    needs=("features and a linear head", "a head trained for it"),
)

rotation = _tells("Sun et al., TTT", 2020)(partial(_puzzle, "rotation", Rotation, lr=0.05))
rotation.__doc__ = """One step on telling by which quarter turn each image was rotated, through the norm layers.

As in DomainAdaptor's comparisons. Its inventors instead adapt all shared weights to one image at a time.
"""

jigsaw = _tells("Carlucci et al., JiGen", 2019)(partial(_puzzle, "jigsaw", Jigsaw, lr=0.01))
jigsaw.__doc__ = """One step on telling in which order the nine tiles of each image were laid, through the norm layers.

As in DomainAdaptor's comparisons; its inventors train with the puzzle and do not adapt.
"""
