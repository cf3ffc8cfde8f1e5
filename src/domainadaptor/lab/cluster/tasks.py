"""Runs of experiments, and trainings, as tasks of Ray: a task whose worker or machine is lost is repeated."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from domainadaptor.errors import AdaptationError
from domainadaptor.lab.cluster.start import Workers
from domainadaptor.lab.experiments.run_spec import RunSpec
from domainadaptor.lab.experiments.runner import Runner
from domainadaptor.lab.experiments.sweep import RunProgress, Sweep, attempt, is_current, prepared, run_sweep
from domainadaptor.lab.records.store import AnyRun, Store
from domainadaptor.lab.training.trainer import TrainedNetwork, Trainer

T = TypeVar("T")
R = TypeVar("R")
_RETRIES = 5  # of a task whose worker ends, as after it ran out of memory


def side_by_side(
    workers: Workers, work: Callable[[T], R], items: Mapping[str, T]
) -> Iterator[tuple[str, R | Exception]]:
    """Yield the name of each item and what a worker makes of it, as they finish; an exception if it fails."""
    import ray

    task = ray.remote(max_retries=_RETRIES, **workers.reserved())(_with_threads)
    waiting, running = deque(items), dict[Any, str]()
    while waiting or running:
        while waiting and len(running) < (workers.count or 1):
            name = waiting.popleft()
            running[task.remote(workers.threads, work, items[name])] = name
        (done,), _ = ray.wait(list(running))
        name = running.pop(done)
        found: R | Exception
        try:
            found = ray.get(done)
        except ray.exceptions.RayTaskError as error:
            found = error.cause if isinstance(error.cause, AdaptationError) else error
        except ray.exceptions.RayError as error:
            found = AdaptationError(f"its worker was lost {_RETRIES + 1} times: {str(error).splitlines()[0]}")
        yield name, found


def _with_threads(threads: int, work: Callable[[T], R], item: T) -> R:
    torch.set_num_threads(threads)
    torch.backends.cudnn.deterministic = True  # as `train` does
    return work(item)


def run_sweep_on_cluster(sweep: Sweep, store: Store, progress: RunProgress, workers: Workers) -> dict[str, str]:
    """Do every run that has no record yet, as `run_sweep` does; this process alone writes to the store."""
    specs, runner = prepared(sweep, store)
    device = torch.device("cuda") if workers.gpus else runner.device
    failed: dict[str, str] = {}
    with ExitStack() as held:
        own = {name: spec for name, spec in specs.items() if held.enter_context(store.claim(name))}
        left = {name: spec for name, spec in own.items() if not is_current(store.run(name), spec)}
        if left:
            fitting = held.enter_context(workers.session())
            work = partial(_record, runner.root, runner.images, device)
            for done, (name, found) in enumerate(side_by_side(fitting, work, left)):
                spec = left[name]
                record = runner.failed(spec, str(found).splitlines()[0]) if isinstance(found, Exception) else found
                progress.begun(spec, len(specs) - len(left) + done, len(specs))
                store.write(record)
                progress.ended(spec, record)
                failed |= {name: record.failed} if record.failed else {}
    return failed | run_sweep(sweep, store, progress, [name for name in specs if name not in own])


@cache
def _runner(root: Path | None, images: Path | None, device: torch.device) -> Runner:
    """Return the runner of this worker process, which keeps images and the last network for the next run."""
    return Runner(root, images, device)


def _record(root: Path | None, images: Path | None, device: torch.device, spec: RunSpec) -> AnyRun:
    return attempt(spec, _runner(root, images, device), RunProgress())


def train_on_cluster(
    trainers: Mapping[str, tuple[Trainer, Sequence[str]]], workers: Workers
) -> Iterator[tuple[str, TrainedNetwork]]:
    """Yield trained networks by name as they finish, each trained like here; raise the first error."""
    with workers.session() as fitting:
        for name, found in side_by_side(fitting, partial(_train, bool(workers.gpus)), trainers):
            if isinstance(found, Exception):
                raise found
            yield name, found


def _train(on_gpu: bool, given: tuple[Trainer, Sequence[str]]) -> TrainedNetwork:
    trainer, targets = given
    if on_gpu:
        trainer = replace(trainer, workspace=trainer.workspace._replace(device=torch.device("cuda")))
    return trainer.train(targets)
