"""Every training algorithm learns the digits, and what it trains beside the network learns too.

The floors lie a few points below what two seeds reached; chance is 10 % for a digit, 25 % for a turn and 3 % for the
order of tiles. A run takes about a minute of one core, and the slowest two.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import domainadaptor as da
from domainadaptor.data.loaders import ordered_batches
from domainadaptor.data.open import open_dataset
from domainadaptor.data.pictures import Pictures
from domainadaptor.networks.checkpoint import Checkpoint, load_checkpoint
from domainadaptor.networks.heads import features_of, find_head, head_width
from domainadaptor.tasks import make_task
from domainadaptor.training.recipe import Recipe
from domainadaptor.training.run import Place, Watcher, train

SOURCES = ("chalk", "pen", "neon")
COMMON = {"network": "resnet20", "weights": "none", "size": 20, "batch_size": 60, "head_lr": 1.0, "schedule": "cosine"}


@dataclass(frozen=True)
class Stated:
    """How an algorithm is run, and the accuracies in percent that it reaches at least."""

    floor: float  # of source validation images, without adaptation
    recipe: dict[str, Any]
    also: dict[str, float] = field(default_factory=dict)  # of a task, or of a method that it was trained for


STATED = {
    "erm": Stated(0.0, {"epochs": 4, "lr": 0.05}),
    "erm with tasks": Stated(
        0.0,
        {"epochs": 4, "lr": 0.05, "options": {"tasks": ("rotation", "jigsaw")}},
        {"task rotation": 0.0, "task jigsaw": 0.0, "rotation": 0.0, "jigsaw": 0.0},
    ),
    "erm, swad": Stated(0.0, {"epochs": 4, "lr": 0.05, "select": "swad"}),
    "erm, iabn": Stated(0.0, {"epochs": 4, "lr": 0.05, "norm": "iabn"}, {"note": 0.0}),
    "mldg": Stated(0.0, {"epochs": 3, "lr": 0.05, "algorithm": "mldg"}),
    "fsdcl": Stated(0.0, {"epochs": 4, "lr": 0.02, "algorithm": "fsdcl"}),
    "mvrml": Stated(
        0.0,
        {
            "epochs": 5,
            "lr": 0.05,
            "batch_size": 30,
            "algorithm": "mvrml",
            "options": {"outer_lr": 1.0, "inner": 0.1, "trajectories": 2},
        },
    ),
    "arm": Stated(0.0, {"epochs": 3, "lr": 0.05, "algorithm": "arm"}, {"arm": 0.0}),
    "arm, bn": Stated(0.0, {"epochs": 4, "lr": 0.05, "algorithm": "arm", "options": {"variant": "bn"}}, {"adabn": 0.0}),
    "arm, cml": Stated(
        0.0, {"epochs": 4, "lr": 0.05, "algorithm": "arm", "options": {"variant": "cml"}}, {"adabn": 0.0}
    ),
}


def trained(stated: Stated, folder: Path, seed: int = 0) -> dict[str, Any]:
    """The record of the run."""
    dataset = open_dataset("digits")
    recipe = Recipe("digits", SOURCES, dataset.fingerprint(), seed=seed, **{**COMMON, **stated.recipe})
    place = Place(torch.device("cpu"), None, folder / "runs", folder / "images")
    return train(recipe, dataset, [], place, Watcher(lambda moment: None, lambda *progress: None), "")


def validation(saved: Checkpoint) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Domain, images and labels of the source validation images, batch by batch."""
    dataset = open_dataset("digits")
    for source in SOURCES:
        pictures = Pictures(dataset.domain(source), saved.card.preprocessing)
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
    """The accuracy of a task's head on features, or of a method that adapts to one source domain at a time."""
    network = saved.build()
    if name.startswith("task "):
        head = find_head(network, 10)
        task, draw = make_task(name.removeprefix("task "), head_width(network, head)), torch.Generator().manual_seed(0)
        saved.fill_head(name.removeprefix("task "), task)

        @torch.no_grad()
        def solved(source: str, images: Tensor) -> tuple[Tensor, Tensor]:
            changed, wanted = task.examples(images, draw)
            with features_of(network, head) as features:
                network(changed)
                return task(features()), wanted

        return share_right(solved, saved)
    adaptors = {source: da.adapt(network, name, **saved.options_for(name)) for source in SOURCES}
    return share_right(lambda source, images: (adaptors[source](images), None), saved)


@pytest.mark.slow
@pytest.mark.parametrize("name", STATED)
def test_it_learns(name, tmp_path):
    stated = STATED[name]
    record = trained(stated, tmp_path)
    assert record["source_validation"]["accuracy"] > stated.floor
    saved = load_checkpoint(Path(record["checkpoint"]))
    for what, floor in stated.also.items():
        assert also(what, saved) > floor, what
    if stated.recipe.get("select") == "swad":
        assert "SWAD's mean" in record["chosen"]
