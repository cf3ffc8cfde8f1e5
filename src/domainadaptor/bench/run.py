"""A whole benchmark: methods by networks by batch sizes, as one report that can be kept and compared."""

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import domainadaptor
from domainadaptor.bench.memory import peak_memory
from domainadaptor.bench.timing import Setting, time_methods
from domainadaptor.networks.zoo import blueprint

Row = dict[str, Any]


def run_bench(
    settings: Sequence[Setting],
    methods: Mapping[str, Mapping[str, Any]],
    memory: bool,
    progress: Callable[[str], None],
) -> dict[str, Any]:
    """Times every method on every setting; the report has the machine and the versions too."""
    rows: list[Row] = []
    for setting in settings:
        network = blueprint(setting.network).build(1000, setting.seed)
        where = f"{setting.network}, {setting.batch_size} x {setting.size}²"
        for timing in time_methods(setting, network, methods, progress):
            rows.append({**asdict(setting), **asdict(timing)})
        if memory:
            progress(f"{where}: memory of plain inference")
            plain = peak_memory(setting, "", {})
            for row in rows[-len(methods) :]:
                progress(f"{where}: memory of {row['method']}")
                row["memory_mb"] = peak_memory(setting, row["method"], methods[row["method"]])
                row["plain_memory_mb"] = plain
    return {"machine": _machine(), "methods": {k: dict(v) for k, v in methods.items()}, "rows": rows}


def compared(now: Mapping[str, Any], before: Mapping[str, Any]) -> list[tuple[Row, float | None]]:
    """Each row of a report, with the ratio that the same cell had before."""
    earlier = {_cell(row): float(row["ratio"]) for row in before["rows"]}
    return [(row, earlier.get(_cell(row))) for row in now["rows"]]


def _cell(row: Row) -> tuple[Any, ...]:
    return row["network"], row["method"], row["batch_size"], row["size"], row["device"]


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
