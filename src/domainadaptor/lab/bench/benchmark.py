"""A whole benchmark: methods by networks by batch sizes, as one report that can be kept and compared."""

import os
import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import domainadaptor
from domainadaptor.lab.bench.growth import too_large
from domainadaptor.lab.bench.memory import peak_memory
from domainadaptor.lab.bench.timing import BenchConfig, time_methods
from domainadaptor.lab.networks.zoo import find_network

Row = dict[str, Any]


def run_bench(
    settings: Iterable[tuple[str, BenchConfig]],
    methods: Mapping[str, Mapping[str, Any]],
    memory: bool,
    progress: Callable[[str], None],
    keep: Callable[[dict[str, Any]], None] = lambda _: None,
) -> dict[str, Any]:
    """Times every method on every setting; the report has the machine and the versions too.

    Args:
        settings: Each with what it is a point of: an axis of growth, or "" for a comparison of methods.
        methods: Name -> options.
        memory: Also measure peak memory; settings that do not fit are then listed as skipped instead of tried.
        progress: Is told what is being measured.
        keep: Is given the report so far after each setting, so that an end in between loses only one.
    """
    report: dict[str, Any] = {
        "machine": _machine(),
        "methods": {name: dict(options) for name, options in methods.items()},
        "rows": [],
        "skipped": [],
    }
    for axis, setting in settings:
        progress(f"{where(asdict(setting))}: does it fit into memory?")
        if memory and (reason := too_large(setting, methods)):
            report["skipped"].append({"axis": axis, **asdict(setting), "reason": reason})
        else:
            report["rows"] += _measured(axis, setting, methods, memory, progress)
        keep(report)
    return report


def _measured(
    axis: str,
    setting: BenchConfig,
    methods: Mapping[str, Mapping[str, Any]],
    memory: bool,
    progress: Callable[[str], None],
) -> list[Row]:
    place = where(asdict(setting))
    network = find_network(setting.network).build(1000, setting.seed)
    timings = time_methods(setting, network, methods, progress)
    rows: list[Row] = [{"axis": axis, **asdict(setting), **asdict(timing)} for timing in timings]
    if memory:
        progress(f"{place}: memory of plain inference")
        plain = peak_memory(setting, "", {})
        for row in rows:
            progress(f"{place}: memory of {row['method']}")
            row["memory_mb"] = peak_memory(setting, row["method"], methods[row["method"]])
            row["plain_memory_mb"] = plain
    return rows


def where(point: Mapping[str, Any]) -> str:
    """The network, batch size and side of a row or a setting, to be read."""
    return f"{point['network'].rpartition(':')[2]}, {point['batch_size']} x {point['size']}²"


def compared(now: Mapping[str, Any], before: Mapping[str, Any]) -> list[tuple[Row, float | None]]:
    """Each row of a report, with the ratio that the same cell had before."""
    earlier = {_cell(row): float(row["ratio"]) for row in before["rows"]}
    return [(row, earlier.get(_cell(row))) for row in now["rows"]]


def _cell(row: Row) -> tuple[Any, ...]:
    return row.get("axis", ""), row["network"], row["method"], row["batch_size"], row["size"], row["device"]


def _machine() -> dict[str, Any]:
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "domainadaptor": domainadaptor.__version__,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return named or platform.machine()
