"""Every training algorithm learns the digits, and what it trains beside the network learns too.

The floors lie a few points below what two seeds reached, and more where the seeds differ much; chance is 10 % for a
digit, 25 % for a turn and 3 % for the order of tiles. A run takes one core half a minute to two minutes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import domainadaptor as da
from domainadaptor.lab.data.image_cache import DomainImages
from domainadaptor.lab.data.loaders import ordered_batches
from domainadaptor.lab.data.registry import open_dataset
from domainadaptor.lab.networks.checkpoint import Checkpoint, load_checkpoint
from domainadaptor.lab.networks.heads import find_head, head_width, logits_and_features
from domainadaptor.lab.training.recipe import TrainingRecipe
from domainadaptor.lab.training.trainer import TrainedNetwork, Trainer, TrainingWorkspace
from domainadaptor.tasks import make_task

SOURCES = ("chalk", "pen", "neon")
COMMON = {"network": "resnet20", "weights": "none", "size": 20, "batch_size": 60, "head_lr": 1.0, "schedule": "cosine"}


@dataclass(frozen=True)
class Stated:
    """How an algorithm is run, and the accuracies in percent that it reaches at least."""

    floor: float  # of source validation images, without adaptation
    recipe: dict[str, Any]
    also: dict[str, float] = field(default_factory=dict)  # of a task, or of a method that it was trained for


# In comments: source validation and what else is stated, for seed 0 (and 1), and seconds of one core.
STATED = {
    # 89.7, 90.9; 35 s
    "erm": Stated(85.0, {"epochs": 4, "lr": 0.05}),
    # 92.0, 96.4; rotation 70.2, 71.2; jigsaw 9.4, 12.9; 95 s
    "erm with tasks": Stated(
        87.0,
        {"epochs": 4, "lr": 0.05, "batch_size": 30, "options": {"tasks": ("rotation", "jigsaw")}},
        {"task rotation": 64.0, "task jigsaw": 6.0},
    ),
    # 92.5, 90.2; 33 s. While the rate falls, so may the loss, and then there is no valley: as its authors, at one rate.
    "erm, swad": Stated(
        86.0,
        {"epochs": 4, "lr": 0.05, "schedule": "step", "select": "swad", "select_options": {"checks_per_epoch": 8}},
    ),
    # 95.2, 95.6; by NOTE 95.3, 95.6; 64 s
    "erm, iabn": Stated(90.0, {"epochs": 4, "lr": 0.05, "norm": "iabn"}, {"note": 90.0}),
    # 91.1, 91.0; 35 s
    "mldg": Stated(86.0, {"epochs": 3, "lr": 0.05, "algorithm": "mldg"}),
    # 82.3; 60 s
    "fsdcl": Stated(74.0, {"epochs": 4, "lr": 0.02, "algorithm": "fsdcl"}),
    # 94.6; 58 s
    "mvrml": Stated(
        90.0,
        {
            "epochs": 5,
            "lr": 0.005,
            "batch_size": 30,
            "algorithm": "mvrml",
            "options": {"outer_lr": 1.0, "trajectories": 2},
        },
    ),
    # 73.6; adapted by its learned loss 88.3; 106 s
    "arm": Stated(60.0, {"epochs": 3, "lr": 0.05, "algorithm": "arm"}, {"arm": 84.0}),
    # 83.9; adapted by batch statistics 92.7; 36 s
    "arm, bn": Stated(
        55.0, {"epochs": 4, "lr": 0.05, "algorithm": "arm", "options": {"variant": "bn"}}, {"adabn": 88.0}
    ),
    # 77.9, 89.8; 78 s
    "arm, cml": Stated(70.0, {"epochs": 3, "lr": 0.05, "algorithm": "arm", "options": {"variant": "cml"}}),
}


def trained(stated: Stated, folder: Path, seed: int = 0) -> TrainedNetwork:
    """The record and the checkpoint of the run."""
    dataset = open_dataset("digits")
    settings = {**COMMON, **stated.recipe}
    recipe = TrainingRecipe(dataset="digits", sources=SOURCES, data=dataset.fingerprint(), seed=seed, **settings)
    return Trainer(
        recipe, dataset, TrainingWorkspace(torch.device("cpu"), None, folder / "runs", folder / "images")
    ).train([])


def validation(saved: Checkpoint) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Domain, images and labels of the source validation images, batch by batch."""
    dataset = open_dataset("digits")
    for source in SOURCES:
        pictures = DomainImages(dataset.domain(source), saved.card.preprocessing)
        for images, labels in ordered_batches(pictures, saved.card.preprocessing, "val", 60):
            yield source, images, labels


def share_right(answers: Callable[[str, Tensor], tuple[Tensor, Tensor | None]], saved: Checkpoint) -> float:
    """In percent; `answers` gives logits, and what is right where that is not the label."""
    right = total = 0
    for source, images, labels in validation(saved):
        logits, wanted = answers(source, images)
        right += int((logits.argmax(1) == (labels if wanted is None else wanted)).sum())
        total += len(labels)
    return 100 * right / total


def also(name: str, saved: Checkpoint) -> float:
    """The accuracy of a task's head, or of a method that adapts to one source domain at a time."""
    network = saved.build()
    if name.startswith("task "):
        network.train()  # batch statistics, as the head was trained with and as adaptation runs it
        head = find_head(network, 10)
        task, draw = make_task(name.removeprefix("task "), head_width(network, head)), torch.Generator().manual_seed(0)
        task.load_state_dict(saved.heads[name.removeprefix("task ")])

        @torch.no_grad()
        def solved(source: str, images: Tensor) -> tuple[Tensor, Tensor]:
            changed, wanted = task.examples(images, draw)
            return task(logits_and_features(network, head, changed)[1]), wanted

        return share_right(solved, saved)
    adaptors = {source: da.adapt(network, name, **saved.options_for(name)) for source in SOURCES}
    return share_right(lambda source, images: (adaptors[source](images), None), saved)


@pytest.mark.slow
@pytest.mark.parametrize("name", STATED)
def test_it_learns(name, tmp_path):
    stated = STATED[name]
    record, checkpoint = trained(stated, tmp_path)
    assert record.source_validation.accuracy > stated.floor
    saved = load_checkpoint(checkpoint)
    reached = {what: also(what, saved) for what in stated.also}
    for what, floor in stated.also.items():
        assert reached[what] > floor, what
    if "arm" in reached:  # the learned loss does no harm beside batch statistics alone
        assert reached["arm"] > also("adabn", saved) - 2
    if stated.recipe.get("select") == "swad":
        assert "SWAD's mean" in record.chosen
