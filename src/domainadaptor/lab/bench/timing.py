"""Times of methods against plain inference of the same network, in interleaved rounds of one process."""

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

import domainadaptor
from domainadaptor.adaptation.adaptor import Adaptor
from domainadaptor.profiling import PHASES


@dataclass(frozen=True)
class BenchConfig:
    """What is timed: a network, its input, and how often."""

    network: str
    batch_size: int
    size: int
    rounds: int
    device: str = "cpu"
    seed: int = 0


@dataclass(frozen=True)
class Timing:
    """One method on one setting."""

    method: str
    milliseconds: float  # a batch, median
    plain_milliseconds: float
    ratio: float  # of a round's two times, the median over rounds: what slows a round down slows both
    ratio_low: float  # and the quartiles
    ratio_high: float
    images_per_second: float
    wrap_milliseconds: float  # `adapt`, once a network
    reset_milliseconds: float  # forgetting what a batch taught
    phases: Mapping[str, float] = field(default_factory=dict)  # milliseconds of one batch; the rest is bookkeeping


def time_methods(
    setting: BenchConfig,
    network: nn.Module,
    methods: Mapping[str, Mapping[str, Any]],
    progress: Callable[[str], None],
) -> list[Timing]:
    """Times each method, name -> options, beside plain inference in the network's fastest ordinary form."""
    device = torch.device(setting.device)
    network = network.to(device).to(memory_format=torch.channels_last).eval()
    images = random_images(setting)
    adaptors, wrapping = {}, {}
    for name, options in methods.items():
        begun = time.perf_counter()
        adaptors[name] = domainadaptor.adapt(network, name, **options)
        wrapping[name] = time.perf_counter() - begun

    @torch.no_grad()
    def plain() -> None:
        network(images)

    jobs: dict[str, Callable[[], object]] = {"": plain}
    jobs |= {name: _call(adaptor, images) for name, adaptor in adaptors.items()}
    for job in jobs.values():
        job()  # the first call of anything is slower
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for number in range(setting.rounds):
        # In turn, so that a machine that slows down slows all of them down.
        for name, job in jobs.items():
            progress(f"{setting.network}, round {number + 1}: {name or 'plain inference'}")
            times[name].append(_seconds(job, device))
    found = []
    for name, adaptor in adaptors.items():
        phases = _phases(_call(adaptor, images))
        resetting = _seconds(adaptor.reset, device)
        found.append(_timing(name, times[name], times[""], setting.batch_size, wrapping[name], resetting, phases))
    return found


def random_images(setting: BenchConfig) -> Tensor:
    """A batch of noise: what it shows makes no difference to the time."""
    draw = torch.Generator().manual_seed(setting.seed)
    images = torch.randn(setting.batch_size, 3, setting.size, setting.size, generator=draw)
    return images.to(setting.device).to(memory_format=torch.channels_last)


def _call(adaptor: Adaptor, images: Tensor) -> Callable[[], object]:
    return lambda: adaptor(images)


def _seconds(job: Callable[[], object], device: torch.device) -> float:
    _wait(device)
    begun = time.perf_counter()
    job()
    _wait(device)
    return time.perf_counter() - begun


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _timing(
    name: str,
    own: Sequence[float],
    plain: Sequence[float],
    batch_size: int,
    wrapping: float,
    resetting: float,
    phases: Mapping[str, float],
) -> Timing:
    middle, base = statistics.median(own), statistics.median(plain)
    ratios = sorted(a / b for a, b in zip(own, plain, strict=True))
    low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
    return Timing(
        name,
        1000 * middle,
        1000 * base,
        statistics.median(ratios),
        low,
        high,
        batch_size / middle,
        1000 * wrapping,
        1000 * resetting,
        phases,
    )


def _phases(job: Callable[[], object]) -> dict[str, float]:
    """Where the time of one batch goes, by the marks that adaptors set."""
    with _silence(), profile(activities=[ProfilerActivity.CPU]) as seen:
        job()
    found = {event.key: event.cpu_time_total / 1000 for event in seen.key_averages() if event.key in PHASES}
    return {name: found.get(name, 0.0) for name in PHASES if name in found}


@contextmanager
def _silence() -> Iterator[None]:
    """Without what the profiler itself writes, past Python, of GPUs that are not there."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
