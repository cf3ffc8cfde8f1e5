"""Adaptation by a puzzle trained along: rotation (Sun et al., ICML 2020) and jigsaw (Carlucci et al., CVPR 2019)."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD

from domainadaptor.about import Need, about
from domainadaptor.adaptation.adaptor import Adaptor
from domainadaptor.adaptation.copying import unwrap
from domainadaptor.adaptation.features import find_head
from domainadaptor.adaptation.logits import in_loss_precision
from domainadaptor.adaptation.objective import Forward, Objective
from domainadaptor.adaptation.step import StepAdaptor
from domainadaptor.adaptation.trained import TrainedHead, trained_head
from domainadaptor.errors import BadBatch, BadOption
from domainadaptor.norms.mixed import MixedNorm
from domainadaptor.options import check_choice, check_count, check_number
from domainadaptor.tasks import Task
from domainadaptor.tasks.jigsaw import Jigsaw
from domainadaptor.tasks.rotation import Rotation

__all__ = ["jigsaw", "rotation"]

_NORMS: dict[str, dict[str, Any]] = {
    "batch": {"alpha": 0.0, "fold": False, "variance": "biased"},
    "mixed": {"alpha": "code", "fold": True, "variance": "unbiased"},  # AdaMixBN
    "source": {"alpha": 1.0, "fold": False, "variance": "biased"},
}


class Puzzle(Objective):
    """Cross-entropy of the trained head's answers to changed images, one change an image and step."""

    reads_features = True

    def __init__(self, head: TrainedHead, seed: int) -> None:
        self.head = head
        self.seed = seed
        self.idle = ""
        self.reset()

    def __call__(self, forward: Forward, images: Tensor, logits: Tensor) -> Tensor | None:
        """The mean over the batch, where `forward` gives the features; None for images that cannot be changed so."""
        assert isinstance(self.head.module, Task)
        try:
            changed, answers = self.head.module.examples(images, self._generator)
        except BadBatch as error:
            self.idle = str(error)
            return None
        return F.cross_entropy(in_loss_precision(self.head(forward(changed))), answers)

    def reset(self) -> None:
        """Draws the same changes as at first."""
        self._generator = torch.Generator("cpu").manual_seed(self.seed)

    def memory(self) -> Tensor:
        """Which changes are next."""
        return self._generator.get_state()

    def recall(self, memory: Tensor) -> None:
        """Goes back to those."""
        self._generator.set_state(memory)


_NEEDS: tuple[Need, ...] = ("features and a linear head", "a head trained for it")


@about("Sun et al., TTT", 2020, "self-supervised", forwards="3", backwards="1", needs=_NEEDS)
def rotation(
    network: nn.Module,
    *,
    task: Task | Mapping[str, Tensor] | None = None,
    statistics: str = "batch",
    lr: float = 0.05,
    momentum: float = 0.0,
    steps: int = 1,
    reset_every: int | None = 1,
    predict: str = "after",
    seed: int = 0,
    head: str | None = None,
) -> Adaptor:
    """One step on telling by which quarter turn each image was rotated, through the norm layers.

    As in DomainAdaptor's comparisons. Its inventors instead adapt all shared weights to one image at a time.

    Args:
        network: A network that was trained together with a rotation head.
        task: That head, or its tensors, as a checkpoint holds them: heads["rotation"].
        statistics: "batch", "mixed" as AdaMixBN does, or "source".
        lr: The learning rate of gradient descent.
        momentum: Of it; 0.9 in DomainAdaptor's program where batches are remembered.
        steps: How many steps each batch gets, each with new turns.
        reset_every: After how many batches everything is forgotten: 1 after each, None never.
        predict: "after" the step with one more pass, or "before" it.
        seed: Of the turns.
        head: The name of the linear layer that makes the logits; None: the last one.
    """
    return _puzzle(
        network,
        "rotation",
        Rotation,
        task,
        statistics=statistics,
        lr=lr,
        momentum=momentum,
        steps=steps,
        reset_every=reset_every,
        predict=predict,
        seed=seed,
        head=head,
    )


@about("Carlucci et al., JiGen", 2019, "self-supervised", forwards="3", backwards="1", needs=_NEEDS)
def jigsaw(
    network: nn.Module,
    *,
    task: Task | Mapping[str, Tensor] | None = None,
    statistics: str = "batch",
    lr: float = 0.01,
    momentum: float = 0.0,
    steps: int = 1,
    reset_every: int | None = 1,
    predict: str = "after",
    seed: int = 0,
    head: str | None = None,
) -> Adaptor:
    """One step on telling in which order the nine tiles of each image were laid, through the norm layers.

    As in DomainAdaptor's comparisons; its inventors train with the puzzle and do not adapt.

    Args:
        network: A network that was trained together with a jigsaw head.
        task: That head, or its tensors, as a checkpoint holds them: heads["jigsaw"].
        statistics: "batch", "mixed" as AdaMixBN does, or "source".
        lr: The learning rate of gradient descent.
        momentum: Of it; 0.9 in DomainAdaptor's program where batches are remembered.
        steps: How many steps each batch gets, each with new orders.
        reset_every: After how many batches everything is forgotten: 1 after each, None never.
        predict: "after" the step with one more pass, or "before" it.
        seed: Of the orders.
        head: The name of the linear layer that makes the logits; None: the last one.
    """
    return _puzzle(
        network,
        "jigsaw",
        Jigsaw,
        task,
        statistics=statistics,
        lr=lr,
        momentum=momentum,
        steps=steps,
        reset_every=reset_every,
        predict=predict,
        seed=seed,
        head=head,
    )


def _puzzle(
    network: nn.Module,
    name: str,
    make: Callable[[int], Task],
    task: Task | Mapping[str, Tensor] | None,
    *,
    statistics: str,
    lr: float,
    momentum: float,
    steps: int,
    reset_every: int | None,
    predict: str,
    seed: int,
    head: str | None,
) -> Adaptor:
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
        norm=partial(MixedNorm, **_NORMS[statistics]),
        objective=Puzzle(trained, int(seed)),
        optimizer=partial(SGD, lr=float(lr), momentum=float(momentum)),
        steps=int(steps),
        reset_every=reset_every,
        predict=predict,
        others=statistics != "mixed",
        head=head,
    )
