"""Leave each style out in turn: train on the other three, then test every method on it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

import domainadaptor
from domainadaptor.lab.data.sets.digits import CLASSES, STYLES, Digits, load_digits, render
from domainadaptor.lab.demo.network import make_small_resnet, steps, train

Progress = Callable[[str], None]


class Ingredient(NamedTuple):
    """A method, what it adds, and the method that it builds on."""

    method: str
    adds: str
    builds_on: str
    options: dict[str, Any]


# Chosen on the demo's own styles so that each ingredient shows. A rate of 1.0 was better on chalk and worse elsewhere.
LEARNING_RATE = 0.3
_MIXED: dict[str, Any] = {"alpha": "paper"}
_STEP: dict[str, Any] = {**_MIXED, "lr": LEARNING_RATE}
INGREDIENTS = (
    Ingredient("source", "", "", {}),
    Ingredient("adabn", "batch statistics", "source", {}),
    Ingredient("adamixbn", "mixed statistics", "adabn", _MIXED),
    Ingredient("domainadaptor-t", "step on GEM-T", "adamixbn", _STEP),
    Ingredient("domainadaptor-skd", "step on GEM-SKD", "adamixbn", _STEP),
    Ingredient("domainadaptor-aug", "step on GEM-Aug", "adamixbn", _STEP),
    Ingredient("auto", "the default", "source", {}),
)


@dataclass(frozen=True)
class DemoReport:
    """Every method on every held-out style, and the in-domain accuracy of the networks, in percent."""

    correct: dict[tuple[str, str], int]  # method and held-out style -> correct predictions
    seconds: dict[tuple[str, str], float]
    images: int  # per style
    in_domain: dict[str, float]  # held-out style -> on test digits in the three styles of the training
    batch_size: int
    seed: int

    def accuracy(self, method: str, *styles: str) -> float:
        """Return the accuracy of a method on some styles, in percent; on all of them if none is given."""
        chosen = styles or tuple(self.in_domain)
        return 100 * sum(self.correct[method, style] for style in chosen) / (self.images * len(chosen))

    def as_json(self) -> dict[str, object]:
        """Return everything, for programs."""
        scores = [
            {"style": style, "method": method, "correct": correct, "images": self.images}
            | {"seconds": self.seconds[method, style], "accuracy": self.accuracy(method, style)}
            for (method, style), correct in self.correct.items()
        ]
        return {
            "version": domainadaptor.__version__,
            "torch": torch.__version__,
            "seed": self.seed,
            "batch_size": self.batch_size,
            "options": {part.method: part.options for part in INGREDIENTS},
            "accuracy_in_domain": self.in_domain,
            "mean_accuracy": {part.method: self.accuracy(part.method) for part in INGREDIENTS},
            "scores": scores,
        }


def run_demo(device: torch.device, batch_size: int, seed: int, progress: Progress) -> DemoReport:
    """Train four networks, each without one style, and test every method on that style.

    `progress` is called with a description, `amount_of_work` times. The digits and their styles are always the same.
    """
    training, testing = load_digits()
    report = DemoReport({}, {}, len(testing.labels), {}, batch_size, seed)
    for style in STYLES:
        others = [other for other in STYLES if other != style]
        images, labels = _drawn(training, others, device)
        network = make_small_resnet(len(CLASSES), seed).to(device)
        train(network, images, labels, seed, partial(progress, f"training without {style}"))
        images, labels = _drawn(testing, others, device)
        with torch.no_grad():
            logits = torch.cat([network(chunk) for chunk in images.split(256)])
        report.in_domain[style] = 100 * _correct(logits, labels) / len(images)
        images, labels = _drawn(testing, [style], device)
        for part in INGREDIENTS:
            progress(f"{part.method} on {style}")
            seeded: dict[str, Any] = {"seed": seed} if "seed" in domainadaptor.method_info(part.method).defaults else {}
            adaptor = domainadaptor.adapt(network, part.method, **part.options, **seeded)
            start = time.perf_counter()
            logits = domainadaptor.predict(adaptor, images.split(batch_size))
            report.seconds[part.method, style] = time.perf_counter() - start
            report.correct[part.method, style] = _correct(logits, labels)
    return report


def amount_of_work() -> int:
    """Return how often `run_demo` calls `progress`."""
    training, _ = load_digits()
    return len(STYLES) * (steps(len(training.labels) * (len(STYLES) - 1)) + len(INGREDIENTS))


def sample_images(style: str, count: int) -> Tensor:
    """Return test digits in a style to look at, (count, 3, H, W) between 0 and 1."""
    _, testing = load_digits()
    return render(testing.ink, style)[:count]


def _drawn(digits: Digits, styles: Sequence[str], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return normalized images of the digits in some styles, and their labels."""
    images = torch.cat([(render(digits.ink, style) - 0.5) / 0.5 for style in styles])
    return images.to(device), digits.labels.repeat(len(styles)).to(device)


def _correct(logits: Tensor, labels: Tensor) -> int:
    return int((logits.argmax(1).cpu() == labels.cpu()).sum())
