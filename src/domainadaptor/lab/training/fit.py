"""The training loop: updates, validation on source images, choosing weights, and going on after an interruption."""

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from domainadaptor.errors import AdaptationError, BadFile
from domainadaptor.lab.data.loaders import DomainBatch, TrainingBatches
from domainadaptor.lab.data.seeds import derived_seed
from domainadaptor.lab.files import replacing
from domainadaptor.lab.networks.statistics import StatisticsVariance
from domainadaptor.lab.networks.weights import load_tensors
from domainadaptor.lab.training import distributed
from domainadaptor.lab.training.algorithm import Algorithm
from domainadaptor.lab.training.selection import ValidationScore, WeightSelection

Batches = Callable[[], Iterable[tuple[Tensor, Tensor]]]


@dataclass(frozen=True)
class TrainingProgress:
    """Where a run is, for whoever shows it."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    accuracy: float
    images_per_second: float


@dataclass(frozen=True)
class TrainingSchedule:
    """How long to train, and at which rates."""

    epochs: int
    lr: float
    schedule: str = "step"  # a tenth after 80 % of the epochs, or "cosine"
    warmup: float = 0.0  # epochs of a rising rate
    precision: str = "float32"  # or "bfloat16": mixed

    def lr_at(self, epoch: float) -> float:
        """The rate at a moment, in epochs since the start."""
        if epoch < self.warmup:
            return self.lr * (epoch + 1e-3) / self.warmup
        if self.schedule == "cosine":
            done = (epoch - self.warmup) / max(self.epochs - self.warmup, 1e-9)
            return self.lr * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
        return self.lr * (0.1 if epoch >= math.floor(0.8 * self.epochs) and self.epochs > 1 else 1.0)


class Diverged(AdaptationError):
    """The loss is not finite any more: use a lower rate."""


def fit(
    algorithm: Algorithm,
    training: TrainingBatches,
    validation: Mapping[str, Batches],
    selection: WeightSelection,
    plan: TrainingSchedule,
    *,
    seed: int,
    device: torch.device,
    folder: Path,
    progress: Callable[[TrainingProgress], None],
) -> dict[str, Any]:
    """Trains and leaves the chosen weights in the algorithm.

    Every epoch ends with a file that holds all there is; the same call goes on from there and ends with the same
    weights, since what a step sees and draws follows from the seed, the epoch and the step alone.

    Args:
        algorithm: What learns; on the device already.
        training: The batches.
        validation: Source domain -> its validation images.
        selection: Which weights are kept.
        plan: How long, and at which rates.
        seed: Of everything random.
        device: Where the algorithm is.
        folder: For the log and the file to go on from.
        progress: Called after every step.

    Returns:
        What is known of the run: the log, how the weights were chosen, the variance of the norm layers' statistics.

    Raises:
        Diverged: The loss is not finite.
    """
    variance = StatisticsVariance(algorithm.network)
    log: list[dict[str, Any]] = []
    if (state := _read_state(folder / "resume.pt", device)) is not None:
        algorithm.resume(state["algorithm"])
        selection.resume(state["selection"])
        variance.resume(state["variance"])
        log = json.loads(state["log"])
    if distributed.is_main_process():
        _write_log(folder / "log.jsonl", log)
    for epoch in range(len(log), plan.epochs):
        log.append(
            _train_epoch(epoch, algorithm, training, validation, selection, plan, variance, seed, device, progress)
        )
        state = {
            "algorithm": algorithm.resume_state(),
            "selection": selection.resume_state(),
            "variance": variance.resume_state(),
            "log": json.dumps(log),
        }
        if distributed.is_main_process():
            _write_state(folder / "resume.pt", state)
            _write_log(folder / "log.jsonl", log)
    chosen, why = selection.chosen()
    load_tensors(algorithm, chosen)
    torch.manual_seed(derived_seed(seed, plan.epochs))  # a run that was stopped here ends the same
    selection.finish(algorithm.network, _rounds(training, 0, device), algorithm.joint_logits)
    algorithm.eval()
    return {"log": log, "chosen": why, "statistics_variance": variance.by_layer()}


def _train_epoch(
    epoch: int,
    algorithm: Algorithm,
    training: TrainingBatches,
    validation: Mapping[str, Batches],
    selection: WeightSelection,
    plan: TrainingSchedule,
    variance: StatisticsVariance,
    seed: int,
    device: torch.device,
    progress: Callable[[TrainingProgress], None],
) -> dict[str, Any]:
    """One epoch; what it did, for the log."""
    # Dropout and stochastic depth draw from the global generator.
    torch.manual_seed(derived_seed(seed, epoch))
    begun, images = time.perf_counter(), 0
    sums: dict[str, float] = {}
    checks: list[dict[str, Any]] = []
    lr = plan.lr_at(epoch)
    for step, batches in enumerate(training.epoch(epoch)):
        lr = plan.lr_at(epoch + step / training.steps)
        algorithm.set_lr(lr)
        algorithm.train()
        draw = torch.Generator().manual_seed(derived_seed(seed, epoch, step))
        with torch.autocast(device.type, torch.bfloat16, enabled=plan.precision == "bfloat16"):
            numbers = algorithm.update([_on(batch, device) for batch in batches], draw)
        if not math.isfinite(numbers["loss"]):
            raise Diverged(f"the loss is {numbers['loss']} in epoch {epoch + 1}, step {step + 1}; {_slower(plan)}")
        variance.add()
        selection.after_step(algorithm)
        sums = {name: sums.get(name, 0.0) + value for name, value in numbers.items()}
        images += sum(len(batch.labels) for batch in batches)
        speed = images / (time.perf_counter() - begun)
        mean = {name: total / (step + 1) for name, total in sums.items()}
        progress(
            TrainingProgress(
                epoch, plan.epochs, step + 1, training.steps, mean["loss"], mean.get("accuracy", 0.0), speed
            )
        )
        if _is_check(step, training.steps, selection.checks_per_epoch):
            since = training.steps * training.rounds // selection.checks_per_epoch
            algorithm.before_validation(_rounds(training, epoch, device), since)
            distributed.average_statistics(algorithm.network)
            variance.refresh()
            checked = validate(algorithm.eval().predict, validation, device)
            done = epoch * training.steps + step + 1
            if not math.isfinite(checked["loss"]):
                raise Diverged(f"the validation loss is {checked['loss']} after step {done}; {_slower(plan)}")
            selection.after_check(algorithm, ValidationScore(done, checked["accuracy"], checked["loss"]))
            checks.append({"step": done, **checked})
    return {
        "epoch": epoch + 1,
        "lr": lr,
        **{name: total / training.steps for name, total in sums.items()},
        "images_per_second": images / (time.perf_counter() - begun),
        "seconds": time.perf_counter() - begun,
        "validation": checks,
        "statistics_variance": variance.by_layer(),  # from the beginning of the run on
    }


@torch.no_grad()
def validate(
    predict: Callable[[Tensor], Tensor], validation: Mapping[str, Batches], device: torch.device
) -> dict[str, Any]:
    """Accuracy in percent and mean loss over all domains' images together, and the accuracy of each domain."""
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
            raise BadFile(f"domain {domain!r} has no readable validation images")
        domains[domain] = 100 * own_right / own_total
        right, total = right + own_right, total + own_total
    return {"accuracy": 100 * right / total, "loss": loss / total, "domains": domains}


def _is_check(step: int, steps: int, per_epoch: int) -> bool:
    """Checks lie evenly over an epoch, the last one at its end."""
    return (step + 1) * per_epoch // steps > step * per_epoch // steps


def _rounds(training: TrainingBatches, epoch: int, device: torch.device) -> Iterator[list[DomainBatch]]:
    return ([_on(batch, device) for batch in batches] for batches in training.each_round(epoch))


def _slower(plan: TrainingSchedule) -> str:
    return f"use a lower --lr (it is {plan.lr:g}) and train anew"


def _write_state(path: Path, state: dict[str, Any]) -> None:
    try:
        with replacing(path) as beside:
            torch.save(state, beside)
    except RuntimeError as error:  # what torch makes of a full disk
        raise BadFile(
            f"cannot write {str(path)!r}: {str(error).splitlines()[0]}; free some space, and the same command goes on"
        ) from error


def _on(batch: DomainBatch, device: torch.device) -> DomainBatch:
    batch = distributed.local_share(batch)
    return batch._replace(images=batch.images.to(device), labels=batch.labels.to(device))


def _read_state(path: Path, device: torch.device) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        return torch.load(path, map_location=device, weights_only=True)  # type: ignore[no-any-return]
    except Exception as error:
        raise BadFile(f"{str(path)!r} cannot be read ({error}); delete it to train from the beginning") from error


def _write_log(path: Path, log: list[dict[str, Any]]) -> None:
    text = "".join(json.dumps(entry, allow_nan=False) + "\n" for entry in log)
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8")
