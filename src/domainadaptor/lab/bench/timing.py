"""Time of methods relative to the source model, in interleaved rounds of one process."""

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

import domainadaptor
from domainadaptor.lab.measure import timed
from domainadaptor.profiling import PHASES


@dataclass(frozen=True)
class BenchConfig:
    """A network, its input, and the number of rounds."""

    network: str
    batch_size: int
    size: int
    rounds: int
    device: str = "cpu"
    seed: int = 0
    engine: str = "torch"  # or "onnxruntime", in which a network's own ONNX file takes the place of the source model


@dataclass(frozen=True)
class Timing:
    """The cost of one method."""

    method: str
    milliseconds: float  # per batch, median
    source_milliseconds: float
    ratio: float  # to the source model in the same round, median over rounds: slow rounds slow down both
    ratio_low: float  # lower quartile
    ratio_high: float  # upper quartile
    images_per_second: float
    wrap_milliseconds: float  # of `adapt`, once per network
    reset_milliseconds: float  # of `Adaptor.reset`
    phases: Mapping[str, float] = field(default_factory=dict)  # milliseconds of one batch, without bookkeeping


def time_methods(
    config: BenchConfig, network: nn.Module, methods: Mapping[str, Mapping[str, Any]], progress: Callable[[str], None]
) -> list[Timing]:
    """Time each method, name -> options, and the source model in channels-last memory format."""
    device = torch.device(config.device)
    network = network.to(device).to(memory_format=torch.channels_last).eval()
    images = random_images(config)
    adaptors, wrapping = {}, {}
    for name, options in methods.items():
        start = time.perf_counter()
        adaptors[name] = domainadaptor.adapt(network, name, **options)
        wrapping[name] = 1000 * (time.perf_counter() - start)
        adaptors[name].watch.compares = False  # which takes a pass now and then

    @torch.no_grad()
    def predict() -> None:
        network(images)

    jobs: dict[str, Callable[[], object]] = {"": predict}
    jobs |= {name: partial(adaptor, images) for name, adaptor in adaptors.items()}
    times = time_in_turn(config, jobs, progress)
    timings = []
    for name, adaptor in adaptors.items():
        phases = _phases(jobs[name])
        resetting = 1000 * timed(adaptor.reset, device)[1]
        costs = relative_costs(config, times[name], times[""])
        timings.append(
            Timing(name, **costs, wrap_milliseconds=wrapping[name], reset_milliseconds=resetting, phases=phases)
        )
    return timings


def time_in_turn(
    config: BenchConfig, jobs: Mapping[str, Callable[[], object]], progress: Callable[[str], None]
) -> dict[str, list[float]]:
    """Return the seconds of each job in each round; a machine that slows down affects all of them."""
    for job in jobs.values():
        job()  # the first call is slower
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for number in range(config.rounds):
        for name, job in jobs.items():
            progress(f"{config.network}, round {number + 1}: {name or 'source model'}")
            times[name].append(timed(job, torch.device(config.device))[1])
    return times


def relative_costs(config: BenchConfig, own: Sequence[float], source: Sequence[float]) -> dict[str, float]:
    """Return the fields of a `Timing` that follow from the seconds of a method and of the source model."""
    ratios = sorted(a / b for a, b in zip(own, source, strict=True))
    return {
        "milliseconds": 1000 * statistics.median(own),
        "source_milliseconds": 1000 * statistics.median(source),
        "ratio": statistics.median(ratios),
        "ratio_low": ratios[len(ratios) // 4],
        "ratio_high": ratios[-1 - len(ratios) // 4],
        "images_per_second": config.batch_size / statistics.median(own),
    }


def random_images(config: BenchConfig) -> Tensor:
    """Return a batch of noise: the content of images does not affect the time."""
    generator = torch.Generator().manual_seed(config.seed)
    images = torch.randn(config.batch_size, 3, config.size, config.size, generator=generator)
    return images.to(config.device).to(memory_format=torch.channels_last)


def _phases(job: Callable[[], object]) -> dict[str, float]:
    """Return the milliseconds of each phase of one batch, by the marks that adaptors set."""
    with _silent_stderr(), profile(activities=[ProfilerActivity.CPU]) as profiled:
        job()
    found = {event.key: event.cpu_time_total / 1000 for event in profiled.key_averages() if event.key in PHASES}
    return {name: found[name] for name in PHASES if name in found}


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Hide what the profiler writes to standard error about missing GPUs, bypassing Python."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "w") as devnull:
            os.dup2(devnull.fileno(), 2)
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
