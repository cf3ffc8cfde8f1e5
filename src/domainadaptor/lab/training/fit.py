"""The training loop: updates, validation on source images, selecting weights, and resuming."""

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from domainadaptor.errors import AdaptationError, BadFile
from domainadaptor.lab.data.loaders import DomainBatch, TrainingBatches
from domainadaptor.lab.data.seeds import derived_seed
from domainadaptor.lab.files import replacing
from domainadaptor.lab.networks.statistics import StatisticsTracker
from domainadaptor.lab.networks.weights import load_tensors
from domainadaptor.lab.training import distributed
from domainadaptor.lab.training.algorithm import Algorithm
from domainadaptor.lab.training.recipe import TrainingRecipe
from domainadaptor.lab.training.selection import ValidationScore, WeightSelection

RESUME_FILE = "resume.pt"
LOG_FILE = "log.jsonl"
Batches = Callable[[], Iterable[tuple[Tensor, Tensor]]]


class Diverged(AdaptationError):
    """The loss is not finite: use a lower learning rate."""


class TrainingProgress(NamedTuple):
    """How far a run is."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    accuracy: float
    images_per_second: float


def lr_at(recipe: TrainingRecipe, epoch: float) -> float:
    """Return the learning rate at a time in epochs since the start."""
    if epoch < recipe.warmup:
        return recipe.lr * (epoch + 1e-3) / recipe.warmup
    if recipe.schedule == "cosine":
        done = (epoch - recipe.warmup) / max(recipe.epochs - recipe.warmup, 1e-9)
        return recipe.lr * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
    return recipe.lr * (0.1 if epoch >= math.floor(0.8 * recipe.epochs) and recipe.epochs > 1 else 1.0)


@dataclass
class TrainingLoop:
    """Trains an algorithm and leaves the selected weights in it.

    Every epoch ends with a file that holds the whole state. The same call resumes from it and ends with the same
    weights, because what a step sees and draws depends on the seed, the epoch and the step alone.
    """

    algorithm: Algorithm
    training: TrainingBatches
    validation: Mapping[str, Batches]  # by source domain
    selection: WeightSelection
    recipe: TrainingRecipe
    device: torch.device
    folder: Path  # for the log and the file to resume from
    progress: Callable[[TrainingProgress], object]
    log: list[dict[str, Any]] = field(default_factory=list)

    def run(self) -> dict[str, Any]:
        """Train; return the log, how the weights were selected, and the variance of the batch statistics."""
        self._tracker = StatisticsTracker(self.algorithm.network)
        self._resume()
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):  # dropout and stochastic depth use the global generator
            for epoch in range(len(self.log), self.recipe.epochs):
                self.log.append(self._run_epoch(epoch))
                self._save()
            state, chosen = self.selection.chosen()
            load_tensors(self.algorithm, state)
            torch.manual_seed(derived_seed(self.recipe.seed, self.recipe.epochs))
            self.selection.finish(self.algorithm.network, self._rounds(0), self.algorithm.joint_logits)
        self.algorithm.eval()
        return {"log": self.log, "chosen": chosen, "statistics_variance": self._tracker.by_layer()}

    def _run_epoch(self, epoch: int) -> dict[str, Any]:
        """Run one epoch; return its entry of the log."""
        torch.manual_seed(derived_seed(self.recipe.seed, epoch))
        steps, started, images = self.training.steps, time.perf_counter(), 0
        sums: dict[str, float] = {}
        checks: list[dict[str, Any]] = []
        lr = lr_at(self.recipe, epoch)
        for step, batches in enumerate(self.training.epoch(epoch)):
            lr = lr_at(self.recipe, epoch + step / steps)
            numbers = self._update(epoch, step, lr, batches)
            sums = {name: sums.get(name, 0.0) + value for name, value in numbers.items()}
            images += sum(len(batch.labels) for batch in batches)
            loss, accuracy = (sums.get(name, 0.0) / (step + 1) for name in ("loss", "accuracy"))
            speed = images / (time.perf_counter() - started)
            self.progress(TrainingProgress(epoch, self.recipe.epochs, step + 1, steps, loss, accuracy, speed))
            each = self.selection.checks_per_epoch  # evenly over the epoch, the last at its end
            if (step + 1) * each // steps > step * each // steps:
                checks.append(self._validate(epoch, epoch * steps + step + 1))
        seconds = time.perf_counter() - started
        return {
            "epoch": epoch + 1,
            "lr": lr,
            **{name: total / steps for name, total in sums.items()},
            "images_per_second": images / seconds,
            "seconds": seconds,
            "validation": checks,
            "statistics_variance": self._tracker.by_layer(),  # since the start of the run
        }

    def _update(self, epoch: int, step: int, lr: float, batches: Iterable[DomainBatch]) -> dict[str, float]:
        algorithm = self.algorithm
        algorithm.set_lr(lr)
        algorithm.train()
        draw = torch.Generator().manual_seed(derived_seed(self.recipe.seed, epoch, step))
        mixed = self.recipe.precision == "bfloat16"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=mixed):
            numbers = algorithm.update([self._local(batch) for batch in batches], draw)
        self._check_finite("loss", numbers["loss"], f"in epoch {epoch + 1}, step {step + 1}")
        self._tracker.add()
        self.selection.after_step(algorithm)
        return numbers

    def _validate(self, epoch: int, done: int) -> dict[str, Any]:
        since = self.training.steps * self.training.rounds // self.selection.checks_per_epoch
        self.algorithm.before_validation(self._rounds(epoch), since)
        distributed.average_statistics(self.algorithm.network)
        self._tracker.refresh()
        scores = validate(self.algorithm.eval().predict, self.validation, self.device)
        self._check_finite("validation loss", scores["loss"], f"after step {done}")
        self.selection.after_check(self.algorithm, ValidationScore(done, scores["accuracy"], scores["loss"]))
        return {"step": done, **scores}

    def _check_finite(self, what: str, value: float, when: str) -> None:
        if not math.isfinite(value):
            raise Diverged(f"the {what} is {value} {when}; use a lower --lr than {self.recipe.lr:g}")

    def _rounds(self, epoch: int) -> Iterator[list[DomainBatch]]:
        return ([self._local(batch) for batch in batches] for batches in self.training.each_round(epoch))

    def _local(self, batch: DomainBatch) -> DomainBatch:
        """Return this process's share of a batch, on its device."""
        batch = distributed.local_share(batch)
        return batch._replace(images=batch.images.to(self.device), labels=batch.labels.to(self.device))

    def _resume(self) -> None:
        path = self.folder / RESUME_FILE
        if path.is_file():
            try:
                state = torch.load(path, map_location=self.device, weights_only=True)
                log = json.loads(state["log"])
                for name, part in self._parts().items():
                    part.resume(state[name])
            except Exception as error:
                raise BadFile(
                    f"{str(path)!r} is corrupt or of another version ({error}); delete it to train from the beginning"
                ) from error
            self.log[:] = log
        if distributed.is_main_process():
            self._write_log()

    def _parts(self) -> dict[str, Algorithm | WeightSelection | StatisticsTracker]:
        return {"algorithm": self.algorithm, "selected": self.selection, "variance": self._tracker}

    def _save(self) -> None:
        if not distributed.is_main_process():
            return
        path = self.folder / RESUME_FILE
        state = {name: part.resume_state() for name, part in self._parts().items()}
        try:
            with replacing(path) as temporary:
                torch.save({**state, "log": json.dumps(self.log)}, temporary)
        except RuntimeError as error:  # raised by torch if the disk is full
            reason = str(error).splitlines()[0]
            raise BadFile(f"cannot write {str(path)!r}: {reason}; free some space and run the command again") from error
        self._write_log()

    def _write_log(self) -> None:
        text = "".join(json.dumps(entry, allow_nan=False) + "\n" for entry in self.log)
        with replacing(self.folder / LOG_FILE) as temporary:
            temporary.write_text(text, encoding="utf-8")


@torch.no_grad()
def validate(
    predict: Callable[[Tensor], Tensor], validation: Mapping[str, Batches], device: torch.device
) -> dict[str, Any]:
    """Return accuracy in percent and mean loss over the images of all domains, and the accuracy of each domain."""
    right = total = 0
    loss = 0.0
    domains: dict[str, float] = {}
    for domain, batches in validation.items():
        own_right = own_total = 0
        for images, labels in batches():
            logits, labels = predict(images.to(device)).float(), labels.to(device)
            own_right += int((logits.argmax(1) == labels).sum())
            own_total += len(labels)
            loss += float(F.cross_entropy(logits, labels, reduction="sum"))
        if not own_total:
            raise BadFile(f"domain {domain!r} has no readable images to validate on")
        domains[domain] = 100 * own_right / own_total
        right, total = right + own_right, total + own_total
    return {"accuracy": 100 * right / total, "loss": loss / total, "domains": domains}
