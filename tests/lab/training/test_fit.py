"""The loop: it learns, resumes with the same weights, logs, and says when it cannot go on."""

import json
import math

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from domainadaptor.lab.data.domains import Domain, Example
from domainadaptor.lab.data.image_cache import DomainImages
from domainadaptor.lab.data.loaders import TrainingBatches, ordered_batches
from domainadaptor.lab.data.preprocessing import squashed
from domainadaptor.lab.training.algorithms.mvrml import MVRML
from domainadaptor.lab.training.fit import Diverged, TrainingLoop, lr_at, validate
from domainadaptor.lab.training.recipe import TrainingRecipe
from domainadaptor.lab.training.selection import make_selection


class Stripes:
    """Stripes across, stripes down, or none by class, with a tint by domain: a task that is learned at once."""

    def __init__(self, tint: int) -> None:
        self.tint = tint

    def __call__(self, name: str):
        at = int(name)
        rng = np.random.default_rng([self.tint, at])
        pixels = rng.integers(0, 80, (10, 10, 3))
        if at % 3 == 0:
            pixels[::2] += 120
        elif at % 3 == 1:
            pixels[:, ::2] += 120
        pixels[:, :, self.tint] += 30
        return Image.fromarray(pixels.astype(np.uint8))

    def stamp(self, name: str) -> str:
        return name


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6)
        self.drop, self.fc = nn.Dropout(0.3), nn.Linear(6, 3)

    def forward(self, x):
        return self.fc(self.drop(torch.relu(self.bn(self.conv(x))).mean((2, 3))))


def domain(name: str, tint: int) -> Domain:
    examples = tuple(Example(f"{at:03d}", at % 3, "val" if at % 5 == 0 else "train") for at in range(60))
    return Domain(name, examples, Stripes(tint))


class Stop(BaseException):
    """As sudden as Ctrl-C."""


def run(folder, algorithm="erm", select="best", epochs=3, stop_at=None, lr=0.05, batch_size=12, **options):
    torch.manual_seed(0)
    recipe = TrainingRecipe(
        dataset="stripes", sources=("a", "b"), algorithm=algorithm, options=options, select=select, lr=lr, epochs=epochs
    )
    made = recipe.make_algorithm(Small(), 3)
    pictures = [DomainImages(domain("a", 0), squashed(10)), DomainImages(domain("b", 1), squashed(10))]
    training = TrainingBatches(pictures, squashed(10), batch_size, 0, made.rounds)
    validation = {p.domain.name: (lambda p=p: ordered_batches(p, squashed(10), "val", 8)) for p in pictures}
    seen = 0

    def progress(moment):
        nonlocal seen
        seen += 1
        assert moment.step <= moment.steps
        if seen == stop_at:
            raise Stop

    loop = TrainingLoop(
        made, training, validation, make_selection(select), recipe, torch.device("cpu"), folder, progress
    )
    generator = torch.get_rng_state()
    outcome = loop.run()
    assert torch.equal(torch.get_rng_state(), generator)  # the caller's draws do not depend on training
    return made, outcome, validation


def test_it_learns_and_logs(tmp_path):
    made, outcome, validation = run(tmp_path, epochs=8)
    assert validate(made.network, validation, torch.device("cpu"))["accuracy"] > 90
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [entry["epoch"] for entry in log] == list(range(1, 9))
    assert log[-1]["loss"] < log[0]["loss"]
    assert log[0]["images_per_second"] > 0
    assert set(log[-1]["validation"][0]["domains"]) == {"a", "b"}
    assert outcome["statistics_variance"]["bn"]["mean"] > 0
    assert log[-1]["statistics_variance"] == outcome["statistics_variance"] != log[0]["statistics_variance"]


@pytest.mark.parametrize(
    ("algorithm", "select", "options"),
    [
        ("erm", "best", {}),
        ("erm", "swad", {"tasks": ("rotation", "jigsaw")}),
        ("mldg", "last", {"second_order": True}),
        ("mvrml", "best", {"trajectories": 2, "length": 2}),
        ("fsdcl", "best", {"stage": "bn", "lr": 0.005}),
        ("arm", "swad", {}),
    ],
)
def test_interrupted_anywhere_it_ends_with_the_same_weights(tmp_path, algorithm, select, options):
    (tmp_path / "whole").mkdir()
    (tmp_path / "cut").mkdir()
    whole, outcome, _ = run(tmp_path / "whole", algorithm, select, **options)
    for stop_at in (1, 5, 11, 3) if algorithm != "mvrml" else (1, 3, 1):  # which has two steps an epoch
        with pytest.raises(Stop):
            run(tmp_path / "cut", algorithm, select, stop_at=stop_at, **options)
    assert (tmp_path / "cut" / "resume.pt").is_file()
    cut, again, _ = run(tmp_path / "cut", algorithm, select, **options)
    for (name, one), other in zip(whole.state_dict().items(), cut.state_dict().values(), strict=True):
        assert torch.equal(one, other), name
    assert again["chosen"] == outcome["chosen"]
    assert again["statistics_variance"] == outcome["statistics_variance"]


def test_a_loss_that_is_not_finite_is_explained(tmp_path):
    with pytest.raises(Diverged, match="lower --lr"):
        run(tmp_path, lr=1e30)


def rates(*epochs: float, **settings) -> list[float]:
    recipe = TrainingRecipe(dataset="stripes", **settings)
    return [lr_at(recipe, epoch) for epoch in epochs]


def test_learning_rates():
    assert rates(0, 23.9, 24, 29, epochs=30, lr=1e-3) == pytest.approx([1e-3, 1e-3, 1e-4, 1e-4])
    cosine = {"epochs": 10, "lr": 2.0, "schedule": "cosine", "warmup": 2}
    assert rates(1, **cosine) == pytest.approx([1.0], rel=0.01)
    assert rates(2, 6, 10, **cosine) == pytest.approx([2.0, 1.0, 0.0], abs=1e-12)
    assert math.isfinite(rates(0.999, epochs=1, lr=1.0, schedule="cosine", warmup=1)[0])


def test_validation_counts_all_images_alike():
    class Constant(nn.Module):
        def forward(self, x):
            return torch.tensor([[2.0, 1.0, 0.0]]).repeat(len(x), 1)

    labels = {"a": [0, 0, 1], "b": [2]}
    batches = {name: (lambda own=own: [(torch.zeros(len(own), 1), torch.tensor(own))]) for name, own in labels.items()}
    seen = validate(Constant(), batches, torch.device("cpu"))
    assert seen["accuracy"] == 50
    assert seen["domains"] == {"a": pytest.approx(200 / 3), "b": 0}
    base = math.log(sum(math.exp(v) for v in (2, 1, 0)))
    assert seen["loss"] == pytest.approx((2 * (base - 2) + (base - 1) + base) / 4, rel=1e-6)


def test_weights_that_are_not_finite_after_the_last_step_are_noticed(tmp_path):
    """One step only: its loss is fine, what it leads to is not."""
    with pytest.raises(Diverged, match="validation loss"):
        run(tmp_path, epochs=1, lr=1e20, batch_size=200)


@pytest.mark.parametrize("select", ["best", "last", "swad"])
def test_stopped_after_the_last_epoch_it_still_ends(tmp_path, select):
    whole, _, _ = run(tmp_path, select=select)
    again, _, _ = run(tmp_path, select=select)  # the file to go on from holds the last epoch
    for (name, one), other in zip(whole.state_dict().items(), again.state_dict().values(), strict=True):
        assert torch.equal(one, other), name


def test_weights_that_no_batch_passed_through_get_statistics_before_every_check(tmp_path, monkeypatch):
    asked = []
    was = MVRML.before_validation
    monkeypatch.setattr(
        MVRML, "before_validation", lambda self, rounds, steps: (asked.append(steps), was(self, rounds, steps))
    )
    run(tmp_path, "mvrml", "swad", epochs=2, trajectories=2, length=1)
    assert asked == [2] * 8  # four checks in each epoch of four steps, two rounds a step
