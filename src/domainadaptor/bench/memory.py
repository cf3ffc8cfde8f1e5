"""Peak memory of one method above the network itself, in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import domainadaptor
from domainadaptor.bench.timing import Setting, random_images
from domainadaptor.errors import AdaptationError
from domainadaptor.networks.zoo import blueprint


def peak_memory(setting: Setting, method: str, options: Mapping[str, Any]) -> float | None:
    """Megabytes above network and images at the worst moment of a batch, "" for plain inference; None where unknown."""
    asked = json.dumps({"setting": asdict(setting), "method": method, "options": dict(options)})
    done = subprocess.run(
        [sys.executable, "-m", "domainadaptor.bench.memory"], input=asked, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise AdaptationError(f"measuring the memory of {method or 'plain inference'} failed: {done.stderr[-500:]}")
    answer: float | None = json.loads(done.stdout)
    return answer


def _measure(setting: Setting, method: str, options: Mapping[str, Any]) -> float | None:
    network = blueprint(setting.network).build(1000).to(setting.device).to(memory_format=torch.channels_last)
    images = random_images(setting)
    adaptor = domainadaptor.adapt(network, method, **options) if method else None
    before = _begin(setting.device)
    if before is None:
        return None
    for _ in range(2):
        if adaptor is None:
            with torch.no_grad():
                network(images)
        else:
            adaptor(images)
    peak = _peak(setting.device)
    return None if peak is None else (peak - before) / 1e6


def _begin(device: str) -> float | None:
    """Bytes in use now, from where a peak is measured."""
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats(device)
        return float(torch.cuda.memory_allocated(device))
    try:
        Path("/proc/self/clear_refs").write_text("5")  # Linux: forget the peak so far
    except OSError:
        return None
    return _status("VmRSS")


def _peak(device: str) -> float | None:
    return float(torch.cuda.max_memory_allocated(device)) if device.startswith("cuda") else _status("VmHWM")


def _status(name: str) -> float | None:
    lines = Path("/proc/self/status").read_text().splitlines()
    found = next((line for line in lines if line.startswith(f"{name}:")), None)
    return None if found is None else 1024.0 * int(found.split()[1])


if __name__ == "__main__":
    given = json.load(sys.stdin)
    json.dump(_measure(Setting(**given["setting"]), given["method"], given["options"]), sys.stdout)
