"""Steps on a task trained alongside: rotation (Sun et al., ICML 2020), jigsaw (Carlucci et al., CVPR 2019)."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal

import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD

import domainadaptor as da
from domainadaptor import Option, method
from domainadaptor import option_types as t
from domainadaptor.adaptation.adaptive_network import NormFactory
from domainadaptor.adaptation.copying import unwrap
from domainadaptor.adaptation.predictor import find_head
from domainadaptor.adaptation.trained_head import TrainedHead, trained_head
from domainadaptor.tasks import Task, make_task

__all__ = ["jigsaw", "rotation"]

TaskStatistics = Annotated[
    Literal["batch", "mixed", "source"],
    Option('Statistics of the norm layers: of the "batch", "mixed" as in AdaMixBN, or of the "source" model.'),
]

_NORMS: dict[str, NormFactory] = {
    "batch": da.batch_only,
    "mixed": partial(da.MixedNorm, alpha="code", fold=True, variance="unbiased"),  # AdaMixBN
    "source": partial(da.MixedNorm, alpha=1.0, fold=False, variance="biased"),
}


class TaskLoss(da.Objective):
    """The cross entropy of the trained head on transformed images, newly drawn for each step."""

    uses_logits = False
    needs_features = True

    def __init__(self, head: TrainedHead, seed: int) -> None:
        self.head = head
        self.idle = ""
        self._random = da.SeededGenerator(seed)

    def _parts(self) -> Sequence[da.Stateful]:
        return (self._random,)

    def __call__(self, network: da.AdaptiveNetwork, images: Tensor, logits: Tensor) -> Tensor | None:
        """Return the mean over the batch; None if the images cannot be transformed."""
        assert isinstance(self.head.module, Task)
        try:
            transformed, labels = self.head.module.examples(images, self._random.generator)
        except da.BadBatch as error:
            self.idle = str(error)
            return None
        network(transformed)
        return F.cross_entropy(da.in_loss_precision(self.head(network.features())), labels)


def _adapt_by_task(
    network: nn.Module,
    name: str,
    *,
    task: t.TrainedTensors = None,
    statistics: TaskStatistics = "batch",
    lr: t.LearningRate = 0.01,
    momentum: t.SgdMomentum = 0.0,
    steps: t.Steps = 1,
    reset_every: t.ResetEvery = 1,
    predict: t.Predict = "after",
    seed: t.Seed = 0,
    head: t.Head = None,
) -> da.Adaptor:
    """Build an adaptor that steps on the task of that name, through the norm layers."""
    if isinstance(task, nn.Module) and not isinstance(task, Task):
        raise da.BadOption(f"task is a {type(task).__name__}: expected a domainadaptor.tasks.Task, which has examples")
    plain = unwrap(network)

    def fresh() -> Task:
        layer = plain.get_submodule(find_head(plain, head))
        assert isinstance(layer, nn.Linear)
        return make_task(name, layer.in_features)

    trained = trained_head("task", task, fresh, f"domainadaptor train ... --task {name}", name)
    return da.StepAdaptor(
        network,
        norm=_NORMS[statistics],
        objective=TaskLoss(trained, seed),
        optimizer=partial(SGD, lr=lr, momentum=momentum),
        steps=steps,
        reset_every=reset_every,
        predict=predict,
        others=statistics != "mixed",
        head=head,
    )


@method(
    paper="Sun et al., TTT",
    year=2020,
    kind="self-supervised",
    forwards="3",
    backwards="1",
    needs=("features and a linear head", "a head trained for it"),
    options=_adapt_by_task,
)
def rotation(network: nn.Module, *, lr: t.LearningRate = 0.05, **options: Any) -> da.Adaptor:
    """One gradient step on predicting image rotations.

    As in DomainAdaptor's comparisons. Its authors instead adapt all shared weights to one image at a time.
    """
    return _adapt_by_task(network, "rotation", lr=lr, **options)


@method(
    paper="Carlucci et al., JiGen",
    year=2019,
    kind="self-supervised",
    forwards="3",
    backwards="1",
    needs=("features and a linear head", "a head trained for it"),
    options=_adapt_by_task,
)
def jigsaw(network: nn.Module, **options: Any) -> da.Adaptor:
    """One gradient step on predicting the order of tiles.

    As in DomainAdaptor's comparisons; its authors train with the task and do not adapt.
    """
    return _adapt_by_task(network, "jigsaw", **options)
