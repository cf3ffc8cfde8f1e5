"""A benchmark of methods, networks and batch sizes as one report that can be saved and compared."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, TypeAlias

import torch

from domainadaptor.lab.bench.memory import peak_memory
from domainadaptor.lab.bench.onnx_files import time_onnx
from domainadaptor.lab.bench.timing import BenchConfig, time_methods
from domainadaptor.lab.environment import environment
from domainadaptor.lab.measure import available_memory
from domainadaptor.lab.networks.zoo import find_network

BenchRow: TypeAlias = dict[str, Any]
BenchReport: TypeAlias = dict[str, Any]
Methods: TypeAlias = Mapping[str, Mapping[str, Any]]  # name -> options

_USABLE = 0.8  # share of the available memory; the rest is for other programs
_PROBE = 8  # memory is estimated with a batch that is this many times smaller


def run_bench(
    configs: Sequence[BenchConfig],
    methods: Methods,
    memory: bool,
    progress: Callable[[str], None],
    save: Callable[[BenchReport], None] = lambda _: None,
) -> BenchReport:
    """Time every method on every configuration and report the machine and versions as well.

    With `memory`, peak memory is measured too, and configurations that do not fit are listed as skipped. `save` gets
    the report so far after each configuration, so that an interruption loses only one.
    """
    report: BenchReport = {
        "machine": environment(torch.device(configs[0].device)),
        "methods": {name: dict(options) for name, options in methods.items()},
        "rows": [],
        "skipped": [],
    }
    for config in configs:
        if with_memory := memory and config.engine == "torch":
            progress(f"{title(asdict(config))}: checking whether it fits into memory")
        if with_memory and (reason := _too_large(config, methods)):
            report["skipped"].append({**asdict(config), "reason": reason})
        else:
            report["rows"] += _measure(config, methods, with_memory, progress)
        save(report)
    return report


def _too_large(config: BenchConfig, methods: Methods) -> str:
    """Return why a configuration does not fit into memory, estimated with a smaller batch; "" if it does."""
    if config.batch_size < _PROBE:
        return ""
    small = replace(config, batch_size=config.batch_size // _PROBE)
    peaks = [peak_memory(small, method, options) for method, options in methods.items()]
    needed = max((peak for peak in peaks if peak is not None), default=0.0) * config.batch_size / small.batch_size
    usable = _USABLE * available_memory(config.device) / 1e6
    return "" if needed <= usable else f"needs about {needed:,.0f} MB, but only {usable:,.0f} MB are available"


def _measure(config: BenchConfig, methods: Methods, memory: bool, progress: Callable[[str], None]) -> list[BenchRow]:
    network = find_network(config.network).build(1000, config.seed)
    timed = time_methods if config.engine == "torch" else time_onnx
    rows: list[BenchRow] = [asdict(config) | asdict(t) for t in timed(config, network, methods, progress)]
    if memory:
        progress(f"{title(asdict(config))}: memory of the source model")
        source = peak_memory(config, "", {})
        for row in rows:
            progress(f"{title(asdict(config))}: memory of {row['method']}")
            row["memory_mb"] = peak_memory(config, row["method"], methods[row["method"]])
            row["source_memory_mb"] = source
    return rows


def title(point: Mapping[str, Any]) -> str:
    """Return network, batch size and image size of a row or configuration for a person to read."""
    engine = "" if point["engine"] == "torch" else f" in {point['engine']}"
    return f"{point['network'].rpartition(':')[2]}{engine}, {point['batch_size']} x {point['size']}²"


def by_config(report: BenchReport) -> dict[str, list[BenchRow]]:
    """Return the rows of each configuration, by its title."""
    groups: dict[str, list[BenchRow]] = {}
    for row in report["rows"]:
        groups.setdefault(title(row), []).append(row)
    return groups
