"""Leave each style out in turn: train on the other three, then test every method on it."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

import domainadaptor
from domainadaptor.lab.data.sets.digits import CLASSES, STYLES, Digits, load_digits, render
from domainadaptor.lab.demo.network import SmallResNet, steps, train

Progress = Callable[[str], None]


class Ingredient(NamedTuple):
    """A method, what it adds, and the method that it builds on."""

    method: str
    adds: str
    builds_on: str
    options: dict[str, Any]


# The mixture follows the paper's formula. The learning rate is the best of 0.03, 0.1 and 0.3 on TUNED_ON.
TUNED_ON, LEARNING_RATE = "chalk", 0.3
_MIXED: dict[str, Any] = {"alpha": "paper"}
_STEP: dict[str, Any] = {**_MIXED, "lr": LEARNING_RATE}
INGREDIENTS = (
    Ingredient("source", "", "", {}),
    Ingredient("adabn", "batch statistics", "source", {}),
    Ingredient("adamixbn", "mixed statistics", "adabn", _MIXED),
    Ingredient("domainadaptor-t", "step on GEM-T", "adamixbn", _STEP),
    Ingredient("domainadaptor-skd", "step on GEM-SKD", "adamixbn", _STEP),
    Ingredient("domainadaptor-aug", "step on GEM-Aug", "adamixbn", _STEP),
)


@dataclass(frozen=True)
class StyleScore:
    """One method on one held-out style."""

    style: str
    method: str
    correct: int
    images: int
    seconds: float

    @property
    def accuracy(self) -> float:
        """Accuracy in percent."""
        return 100 * self.correct / self.images


@dataclass(frozen=True)
class DemoReport:
    """Every method on every held-out style, and the in-domain accuracy of the networks."""

    scores: tuple[StyleScore, ...]
    in_domain: dict[str, float]  # held-out style -> percent on test digits in the three styles of the training
    batch_size: int
    seed: int

    def accuracy(self, method: str, style: str) -> float:
        """Accuracy of a method on a style, in percent."""
        return next(score.accuracy for score in self.scores if (score.method, score.style) == (method, style))

    def mean(self, method: str) -> float:
        """Accuracy of a method over all styles, in percent."""
        scores = [score for score in self.scores if score.method == method]
        return 100 * sum(s.correct for s in scores) / sum(s.images for s in scores)

    def as_json(self) -> dict[str, object]:
        """Return everything, for programs."""
        return {
            "version": domainadaptor.__version__,
            "torch": torch.__version__,
            "seed": self.seed,
            "batch_size": self.batch_size,
            "options": {part.method: part.options for part in INGREDIENTS},
            "accuracy_in_domain": self.in_domain,
            "mean_accuracy": {part.method: self.mean(part.method) for part in INGREDIENTS},
            "scores": [{**asdict(score), "accuracy": score.accuracy} for score in self.scores],
        }


def run_demo(device: torch.device, batch_size: int, seed: int, progress: Progress) -> DemoReport:
    """Train four networks, each without one style, and test every method on that style.

    Args:
        device: Where everything runs.
        batch_size: Test images per batch.
        seed: Seed of the training; the digits and their styles are always the same.
        progress: Called with a description, `amount_of_work` times.
    """
    training, testing = load_digits()
    scores, in_domain = [], {}
    for style in STYLES:
        network = _train_without(style, training, device, seed, partial(progress, f"training without {style}"))
        in_domain[style] = _in_domain(network, style, testing, device)
        images = _normalized(testing.ink, style).to(device)
        for part in INGREDIENTS:
            progress(f"{part.method} on {style}")
            scores.append(_score(network, part, style, images.split(batch_size), testing.labels, seed))
    return DemoReport(tuple(scores), in_domain, batch_size, seed)


def amount_of_work() -> int:
    """Return how often `run_demo` calls `progress`."""
    training, _ = load_digits()
    return len(STYLES) * (steps(len(training.labels) * (len(STYLES) - 1)) + len(INGREDIENTS))


def sample_images(style: str, count: int) -> Tensor:
    """Return test digits in a style to look at, (count, 3, H, W) between 0 and 1."""
    _, testing = load_digits()
    return render(testing.ink, style)[:count]


def _train_without(
    style: str, digits: Digits, device: torch.device, seed: int, tick: Callable[[], None]
) -> SmallResNet:
    others = [other for other in STYLES if other != style]
    images = torch.cat([_normalized(digits.ink, other) for other in others]).to(device)
    labels = digits.labels.repeat(len(others)).to(device)
    return train(images, labels, len(CLASSES), seed, tick)


def _in_domain(network: SmallResNet, style: str, digits: Digits, device: torch.device) -> float:
    others = [other for other in STYLES if other != style]
    images = torch.cat([_normalized(digits.ink, other) for other in others]).to(device)
    with torch.no_grad():
        logits = torch.cat([network(chunk) for chunk in images.split(256)])
    return 100 * _correct(logits, digits.labels.repeat(len(others))) / len(images)


def _score(
    network: SmallResNet, part: Ingredient, style: str, batches: tuple[Tensor, ...], labels: Tensor, seed: int
) -> StyleScore:
    seeded: dict[str, Any] = {"seed": seed} if "seed" in domainadaptor.method_info(part.method).defaults else {}
    adaptor = domainadaptor.adapt(network, part.method, **part.options, **seeded)
    start = time.perf_counter()
    logits = domainadaptor.predict(adaptor, batches)
    seconds = time.perf_counter() - start
    return StyleScore(style, part.method, _correct(logits, labels), len(labels), seconds)


def _correct(logits: Tensor, labels: Tensor) -> int:
    return int((logits.argmax(1).cpu() == labels).sum())


def _normalized(ink: Tensor, style: str) -> Tensor:
    return (render(ink, style) - 0.5) / 0.5
