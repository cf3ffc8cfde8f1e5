"""Leaves each style out in turn: trains on the other three, then tests every method on it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

import domainadaptor
from domainadaptor.lab.data.sets.digits import CLASSES, STYLES, Digits, load_digits, render
from domainadaptor.lab.demo.network import SmallResNet, steps, train

Progress = Callable[[str], None]

# The paper's own and what it is compared with first; a minute has no room for all that there are.
METHODS = ("source", "adabn", "adamixbn", "domainadaptor-t", "domainadaptor-skd", "domainadaptor-aug")


@dataclass(frozen=True)
class Score:
    """How one method did on one style that the network never saw."""

    style: str
    method: str
    correct: int
    images: int
    seconds: float

    @property
    def accuracy(self) -> float:
        """Percent of the images."""
        return 100 * self.correct / self.images


@dataclass(frozen=True)
class Report:
    """Every method on every held-out style, and how good the networks are at home."""

    scores: tuple[Score, ...]
    at_home: dict[str, float]  # held-out style -> percent on unseen digits in the three styles it was trained on
    batch_size: int
    seed: int

    def of(self, method: str) -> list[Score]:
        """The method's scores, one a style."""
        return [score for score in self.scores if score.method == method]

    def methods(self) -> list[str]:
        """The methods, in the order in which they ran."""
        return list(dict.fromkeys(score.method for score in self.scores))

    def mean(self, method: str) -> float:
        """The method's percent over all styles."""
        scores = self.of(method)
        return 100 * sum(s.correct for s in scores) / sum(s.images for s in scores)

    def as_json(self) -> dict[str, object]:
        """Everything, for a program to read."""
        scores = [{**asdict(score), "accuracy": score.accuracy} for score in self.scores]
        return {
            "version": domainadaptor.__version__,
            "torch": torch.__version__,
            "seed": self.seed,
            "batch_size": self.batch_size,
            "accuracy_at_home": self.at_home,
            "mean_accuracy": {method: self.mean(method) for method in self.methods()},
            "scores": scores,
        }


def run_demo(device: torch.device, batch_size: int, seed: int, progress: Progress) -> Report:
    """Trains four networks and tests every method on the style that each one never saw.

    Args:
        device: Where everything runs.
        batch_size: How many test images a method sees at once.
        seed: Of training; the digits and their styles are always the same.
        progress: Called with what is being done, `amount_of_work` times.
    """
    with _one_thread():
        return _run(device, batch_size, seed, progress)


def _run(device: torch.device, batch_size: int, seed: int, progress: Progress) -> Report:
    training, testing = load_digits()
    scores, at_home = [], {}
    for style in STYLES:
        network = _train_without(style, training, device, seed, partial(progress, f"training without {style}"))
        at_home[style] = _at_home(network, style, testing, device)
        images = _normalized(testing.ink, style).to(device)
        for method in METHODS:
            progress(f"{method} on {style}")
            scores.append(_score(network, method, style, images, testing.labels, batch_size, seed))
    return Report(tuple(scores), at_home, batch_size, seed)


def amount_of_work() -> int:
    """How often `run_demo` calls `progress`."""
    training, _ = load_digits()
    return len(STYLES) * (steps(len(training.labels) * (len(STYLES) - 1)) + len(METHODS))


def sample_images(style: str, count: int) -> Tensor:
    """A few test digits in a style, (count, 3, H, W) between 0 and 1, to look at."""
    _, testing = load_digits()
    return render(testing.ink, style)[:count]


@contextmanager
def _one_thread() -> Iterator[None]:
    """Sums depend on how many threads share them, and threads wait for each other on a busy machine."""
    held = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(held)


def _train_without(
    style: str, digits: Digits, device: torch.device, seed: int, tick: Callable[[], None]
) -> SmallResNet:
    others = [other for other in STYLES if other != style]
    images = torch.cat([_normalized(digits.ink, other) for other in others]).to(device)
    labels = digits.labels.repeat(len(others)).to(device)
    return train(images, labels, len(CLASSES), seed, tick)


def _at_home(network: SmallResNet, style: str, digits: Digits, device: torch.device) -> float:
    others = [other for other in STYLES if other != style]
    images = torch.cat([_normalized(digits.ink, other) for other in others]).to(device)
    with torch.no_grad():
        logits = torch.cat([network(chunk) for chunk in images.split(256)])
    return 100 * _correct(logits, digits.labels.repeat(len(others))) / len(images)


def _score(
    network: SmallResNet, method: str, style: str, images: Tensor, labels: Tensor, batch_size: int, seed: int
) -> Score:
    options: dict[str, Any] = {"seed": seed} if "seed" in domainadaptor.method_info(method).defaults else {}
    adaptor = domainadaptor.adapt(network, method, **options)
    start = time.perf_counter()
    logits = domainadaptor.predict(adaptor, images.split(batch_size))
    seconds = time.perf_counter() - start
    return Score(style, method, _correct(logits, labels), len(images), seconds)


def _correct(logits: Tensor, labels: Tensor) -> int:
    return int((logits.argmax(1).cpu() == labels).sum())


def _normalized(ink: Tensor, style: str) -> Tensor:
    return (render(ink, style) - 0.5) / 0.5
